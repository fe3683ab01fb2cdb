"""The page's style: that of the reports, and what a form and a live table need."""

from __future__ import annotations

from confide.report.style import css as report_css

_RULES = """
header nav{padding:0}
.skip{position:absolute;left:-99rem}
.skip:focus{position:static;display:inline-block;padding:.6rem 1rem}
.fields{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,15rem),1fr));gap:1rem 1.2rem}
.field{display:flex;flex-direction:column;gap:.25rem}
label{font-weight:600}
input,select,button{font:inherit;color:inherit;min-height:2.75rem;border-radius:.35rem;max-width:100%}
input,select{background:var(--paper);border:1px solid var(--muted);padding:.4rem .6rem;width:100%}
.wrong input,.wrong select{border:2px solid var(--alarm)}
.hint{color:var(--muted);font-size:.88rem;line-height:1.35}
.error{color:var(--alarm);font-size:.92rem;font-weight:600;line-height:1.35}
.problem a{color:inherit}
button{background:var(--accent);color:var(--paper);border:0;padding:.6rem 1.3rem;font-weight:600;
cursor:pointer}
button[aria-disabled]{opacity:1;background:var(--muted);cursor:default}
input:focus-visible,select:focus-visible,button:focus-visible,summary:focus-visible,.outcome:focus-visible{
outline:3px solid var(--accent);outline-offset:2px}
.outcome{background:var(--panel);border-left:.35rem solid var(--accent);padding:.2rem 1.2rem .6rem;
margin:1.2rem 0}
.outcome h2{border:0;padding:0;margin:.8rem 0 .2rem}
.outcome.problem{border-color:var(--alarm)}
.outcome .answer{font-size:1.8rem;font-weight:700;margin:.2rem 0}
.claim{font-size:1.2rem;overflow-wrap:anywhere}
.sideways{display:none}
@media (max-width:60rem){.sideways{display:block}}
meter{width:7rem;height:1rem;vertical-align:middle}
.share{white-space:nowrap;color:var(--muted)}
figure{max-width:42rem}
.chart text{fill:var(--muted);font:13px var(--font)}
.chart text{font-size:14px}
@media (max-width:40rem){.chart text{font-size:22px}}
.chart .grid{stroke:var(--grid)}
.chart .limit{stroke:var(--second);stroke-width:2;stroke-dasharray:6 5}
.chart .spent{fill:none;stroke:var(--accent);stroke-width:2.5;stroke-linejoin:round}
summary{cursor:pointer;padding:.4rem 0}
.news{max-width:66rem;margin:1rem auto 0;padding:0 1rem;min-height:1.6rem;color:var(--muted)}
@media (prefers-reduced-motion:no-preference){html{scroll-behavior:smooth}}
@media (forced-colors:active){.chart .spent,.chart .limit{stroke:CanvasText}button{border:1px solid}}
@media print{form,.skip,.news{display:none}}
"""


def css() -> str:
    """Return the style sheet."""
    return report_css() + _RULES
