"""The style sheet of the reports, for wide and narrow pages and light and dark colour schemes."""

STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfc; --ink: #23272e; --soft: #616975;
  --line: #e3e4e1; --card: #fff; --accent: #2f6fab; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181c; --ink: #dfe2e7; --soft: #9aa2ad; --line: #2d3138; --card: #1c1f24;
    --accent: #7fb2e5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
header, main, footer { max-width: 66rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.5rem; }
header p { margin: .25rem 0 0; color: var(--soft); }
h1 { margin: 0; font-size: 1.8rem; line-height: 1.2; letter-spacing: -.01em;
  overflow-wrap: anywhere; }
h2 { margin: 2.75rem 0 1rem; font-size: 1.15rem; border-bottom: 1px solid var(--line);
  padding-bottom: .35rem; }
h3 { margin: 0 0 .25rem; font-size: .95rem; font-weight: 600; overflow-wrap: anywhere; }
.glance { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem;
  margin: 1.75rem 0 0; }
.glance div { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .7rem .9rem; }
.glance dt { color: var(--soft); font-size: .82rem; overflow-wrap: anywhere; }
.glance dd { margin: 0; font-size: 1.25rem; font-weight: 600; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 27rem), 1fr));
  gap: 1.25rem; align-items: start; margin-top: 1.25rem; }
.images { grid-template-columns: repeat(auto-fill, minmax(8rem, 1fr)); }
.images figure { padding: .6rem; }
.images h3 { font-size: .82rem; }
.weights { grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .9rem 1rem; min-width: 0; }
figure svg { display: block; width: 100%; height: auto; max-width: 36rem; }
figure img { display: block; max-width: 100%; height: auto; image-rendering: pixelated;
  border-radius: .25rem; }
figcaption { margin-top: .5rem; color: var(--soft); font-size: .85rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
caption { text-align: left; color: var(--soft); font-size: .85rem; padding-bottom: .4rem; }
th, td { padding: .38rem .9rem .38rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
th { font-weight: 600; }
.numbers th { overflow-wrap: normal; }
.numbers td, .numbers thead th + th { text-align: right; padding-right: 0; padding-left: .9rem;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
tfoot th, tfoot td { font-weight: 600; border-bottom: 0; }
.pairs th { width: 34%; font-weight: 400; color: var(--soft); }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr));
  gap: 1.5rem 2.5rem; align-items: start; }
.trust { display: grid; grid-template-columns: minmax(6rem, 10rem) 1fr; gap: .8rem 1rem;
  margin: 0; }
.trust dt { color: var(--soft); }
.trust dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
.trust small { display: block; color: var(--soft); font-size: .85rem; }
code, pre { font: .86em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .8rem 1rem; overflow-x: auto; margin: 0; }
footer { color: var(--soft); font-size: .85rem; padding-top: 2.5rem; padding-bottom: 2.5rem; }
@media print { :root { color-scheme: light; } figure { break-inside: avoid; } }
@media (max-width: 30rem) {
  header { padding-top: 1.5rem; } .trust { grid-template-columns: 1fr; gap: .1rem; }
  .trust dd { margin-bottom: .7rem; } .images { grid-template-columns: repeat(3, 1fr); }
  .numbers { font-size: .85rem; } .numbers td, .numbers thead th + th { padding-left: .5rem; } }
"""
