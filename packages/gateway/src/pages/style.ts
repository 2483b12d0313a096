/**
 * The style sheet of all pages. It loads no fonts or images and follows the reader's dark or light
 * mode.
 */
import { createHash } from 'node:crypto';

export const STYLE = `
:root{color-scheme:light dark;--page:#f3f5f8;--card:#fff;--ink:#16202e;--soft:#516072;--line:#d5dce5;--edge:#7d8b9c;--accent:#0b5cad;--on:#fff;--bad:#a3161f;--good:#12692f;--field:#fff}
@media (prefers-color-scheme:dark){:root{--page:#0f141b;--card:#18202b;--ink:#e8edf4;--soft:#a3b1c2;--line:#324052;--edge:#6a7b90;--accent:#78b4ff;--on:#0b1524;--bad:#ff9b9b;--good:#7fdb9a;--field:#0f141b}}
*{box-sizing:border-box}
body{margin:0;min-height:100vh;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;display:flex;flex-direction:column;align-items:center;padding:clamp(16px,9vh,96px) 16px 32px}
.brand{display:flex;gap:10px;align-items:center;margin:0 0 16px;width:100%;max-width:460px;color:var(--soft);font-weight:600}
.brand svg{width:26px;height:26px;flex:none}
main{width:100%;max-width:460px;background:var(--card);border:1px solid var(--line);border-radius:12px;padding:28px}
.wide main,.wide .brand,.wide footer{max-width:760px}
h1{font-size:1.4rem;line-height:1.25;margin:0 0 12px;text-wrap:balance}
p{margin:0 0 14px}
main>:last-child,form>:last-child{margin-bottom:0}
.soft{color:var(--soft)}
.mark{font-weight:700}
.bad h1{color:var(--bad)}
.good h1{color:var(--good)}
a{color:var(--accent);text-underline-offset:3px}
.buttons{display:flex;flex-direction:column;gap:10px;margin:20px 0 0;padding:0;list-style:none}
.row{flex-direction:row}
.row>*{flex:1 1 0}
.button{display:block;width:100%;min-height:46px;padding:10px 16px;border:1px solid var(--edge);border-radius:8px;background:var(--card);color:var(--ink);font:inherit;font-weight:600;text-align:center;text-decoration:none;cursor:pointer}
.button:hover{border-color:var(--accent)}
.first{background:var(--accent);border-color:var(--accent);color:var(--on)}
.first:hover{filter:brightness(1.08)}
.small{display:inline-block;width:auto;min-height:38px;padding:6px 14px}
.danger{color:var(--bad)}
:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
::placeholder{color:var(--soft);opacity:.75}
label{display:block;font-weight:600;margin:0 0 6px}
input[type=text]{width:100%;min-height:50px;padding:8px 14px;border:1px solid var(--edge);border-radius:8px;background:var(--field);color:var(--ink);font:600 1.4rem/1.3 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;letter-spacing:.12em;text-transform:uppercase;margin:0 0 14px}
.code{display:block;margin:0 0 18px;padding:12px;border:1px dashed var(--edge);border-radius:8px;text-align:center;font:700 1.7rem/1.3 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;letter-spacing:.12em;white-space:nowrap}
dl{display:grid;grid-template-columns:auto 1fr;gap:6px 16px;margin:0 0 18px}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
.devices{list-style:none;margin:0 0 18px;padding:0}
.devices li{display:flex;gap:16px;align-items:center;justify-content:space-between;padding:14px 0;border-top:1px solid var(--line)}
.devices li:first-child{border-top:0}
.devices strong{overflow-wrap:anywhere}
.devices .soft{display:block;font-size:.92rem}
.devices form{flex:none}
footer{width:100%;max-width:460px;margin-top:14px;color:var(--soft);font-size:.88rem;overflow-wrap:anywhere}
footer p{margin:0}
footer form{display:inline}
.link{border:0;background:none;padding:0;color:var(--accent);font:inherit;text-decoration:underline;text-underline-offset:3px;cursor:pointer}
@media (max-width:480px){main{padding:22px 18px}.devices li{flex-direction:column;align-items:stretch}.devices .small{width:100%}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:8px}}
`;

/** Hash for the Content-Security-Policy (level 3), which then allows only this inline style. */
export const STYLE_HASH = `sha256-${createHash('sha256').update(STYLE).digest('base64')}`;
