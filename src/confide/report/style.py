"""The page's style: one column for phones, two where there is room, light, dark and print."""

from __future__ import annotations

#: Colours by scheme. Every pair of text and ground meets WCAG AA (4.5 : 1); a test computes it.
LIGHT = {
    "paper": "#ffffff",
    "panel": "#f3f6f9",
    "ink": "#1a1f24",
    "muted": "#505963",
    "grid": "#d5dbe1",
    "accent": "#0a58a6",
    "second": "#a0430f",
    "alarm": "#9c1418",
    "alarm-ink": "#ffffff",
}
DARK = {
    "paper": "#11151a",
    "panel": "#1b2128",
    "ink": "#e7ebef",
    "muted": "#a9b3be",
    "grid": "#35404b",
    "accent": "#80bcff",
    "second": "#ffae78",
    "alarm": "#ff9c96",
    "alarm-ink": "#11151a",
}

_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:1rem/1.55 var(--font);overflow-wrap:break-word}
header,main,footer,nav{max-width:66rem;margin:0 auto;padding:0 1rem}
header{padding-top:1.5rem}
h1{font-size:1.15rem;line-height:1.3;margin:0 0 1rem;color:var(--muted);font-weight:600}
h2{font-size:1.3rem;line-height:1.3;margin:2.5rem 0 .6rem;padding-top:.9rem;border-top:1px solid var(--grid)}
h3{font-size:1rem;margin:1.4rem 0 .3rem}
p,ul,dl,figure{margin:.6rem 0}
p,li,dd{max-width:42rem}
.claim{font-size:1.45rem;line-height:1.35;font-weight:600;max-width:46rem;margin:0 0 .8rem}
.line{color:var(--muted)}
.banner{background:var(--alarm);color:var(--alarm-ink);padding:.9rem 1.1rem;border-radius:.4rem;
margin:0 0 1.2rem;font-weight:600}
.banner strong{display:block;font-size:1.4rem;letter-spacing:.02em}
.note{border-left:.3rem solid var(--second);background:var(--panel);padding:.6rem .9rem;margin:.8rem 0;
max-width:46rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.8rem,1fr));gap:.6rem;margin:1.2rem 0;
padding:0}
.tiles div{background:var(--panel);border-radius:.4rem;padding:.6rem .8rem}
.tiles dt{color:var(--muted);font-size:.85rem;line-height:1.3}
.tiles dd{margin:.15rem 0 0;font-size:1.3rem;line-height:1.25;font-weight:600;
font-variant-numeric:tabular-nums}
.tiles dd small{display:block;font-size:.8rem;font-weight:400;color:var(--muted);line-height:1.35}
nav ul{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;margin:0}
nav a{display:inline-block;padding:.3rem 0}
a{color:var(--accent)}
a:focus-visible,.scroll:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
code,pre{font:.88em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
code{overflow-wrap:anywhere}
pre{background:var(--panel);padding:.7rem .9rem;border-radius:.4rem;white-space:pre-wrap;
overflow-wrap:anywhere;margin:.5rem 0}
.scroll{overflow-x:auto;margin:.9rem 0;max-width:100%}
table{border-collapse:collapse;font-size:.92rem;line-height:1.4;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--muted);padding:0 0 .4rem;font-size:.88rem}
th,td{text-align:left;vertical-align:top;padding:.35rem .9rem .35rem 0;border-bottom:1px solid var(--grid)}
thead th{font-size:.85rem;color:var(--muted);border-bottom-width:2px;vertical-align:bottom}
tbody th{font-weight:600;min-width:6.5rem;overflow-wrap:anywhere}
.n{text-align:right}
td.n,tbody th.n{white-space:nowrap}
tr.own th,tr.own td{background:var(--panel)}
figure{max-width:34rem}
figure svg{display:block;width:100%;height:auto;overflow:visible}
figcaption{color:var(--muted);font-size:.9rem;line-height:1.45;margin-top:.3rem}
dl.plain div{margin:.7rem 0}
dl.plain dt{font-weight:600}
dl.plain dd{margin:.1rem 0 0}
footer{color:var(--muted);font-size:.88rem;margin-top:3rem;padding-bottom:2rem}
@media (min-width:60rem){
.pair{display:grid;grid-template-columns:minmax(0,34rem) minmax(0,1fr);gap:0 2.5rem;align-items:start}
.pair>*{min-width:0}
dl.plain div{display:grid;grid-template-columns:11rem minmax(0,42rem);gap:1.2rem}
}
@media print{
@page{margin:16mm 15mm}
body{font-size:10pt}
header,main,footer{max-width:none;padding-left:0;padding-right:0}
nav{display:none}
h2{break-after:avoid;margin-top:1.4rem}
h3,caption{break-after:avoid}
figure,tr,.tiles,.note,.banner,pre,dl.plain div{break-inside:avoid}
thead{display:table-header-group}
.scroll{overflow:visible}
figure{max-width:12.5cm}
.banner{background:none;color:var(--ink);border:3pt double var(--ink)}
.tiles div,.note,pre{background:none;border:1px solid var(--grid)}
.note{border-left:.3rem solid var(--second)}
table{font-size:9pt}
a{color:inherit;text-decoration:none}
}
"""


def css() -> str:
    """Return the style sheet."""

    def block(colours: dict[str, str]) -> str:
        return ";".join(f"--{key}:{value}" for key, value in colours.items())

    font = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"Liberation Sans",sans-serif'
    return (
        f":root{{color-scheme:light dark;--font:{font};{block(LIGHT)}}}\n@media screen and "
        f"(prefers-color-scheme:dark){{:root{{{block(DARK)}}}}}{_RULES}"
    )
