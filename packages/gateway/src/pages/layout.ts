/** What every page of the gateway has in common, and the headers it is sent with. */
import { html, type Markup } from './html.ts';
import { STYLE, STYLE_HASH } from './style.ts';

export type Page = {
  /** Of the window; the heading stands in `body`. */
  title: string;
  body: Markup;
  tone?: 'plain' | 'good' | 'bad';
  wide?: boolean;
  footer?: Markup | null;
};

/**
 * Nothing runs, nothing is loaded, nothing is framed; forms come back here only. (A redirect after a form to another host would
 * fail `form-action`: forms are answered by pages or redirects of this host.)
 */
export const PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': `default-src 'none'; style-src '${STYLE_HASH}'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'`,
  'x-frame-options': 'DENY',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
  // RFC 9700 section 4.2: codes and states stand in addresses.
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
} as const;

const ANCHOR = html`<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" aria-hidden="true"><circle cx="12" cy="5" r="2.5"/><path d="M12 7.5V21M7.5 11h9M4 14c.5 4 3.6 7 8 7s7.5-3 8-7"/></svg>`;

export function renderPage(page: Page): string {
  const classes = [page.tone ?? 'plain', ...(page.wide === true ? ['wide'] : [])].join(' ');
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>${page.title} · Berth</title>
<link rel="icon" href="data:,">
`.text.concat(
    `<style>${STYLE}</style>\n`,
    html`</head>
<body class="${classes}">
<div class="brand">${ANCHOR}<span>Berth</span></div>
<main>
${page.body}
</main>
${page.footer ? html`<footer>${page.footer}</footer>` : null}
</body>
</html>
`.text,
  );
}
