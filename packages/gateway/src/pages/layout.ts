/** Layout and headers of all pages of the gateway. */
import { html, type Markup } from './html.ts';
import { STYLE, STYLE_HASH } from './style.ts';

export type Page = {
  /** Title of the browser window. `body` contains the heading. */
  title: string;
  body: Markup;
  tone?: 'plain' | 'good' | 'bad';
  wide?: boolean;
  footer?: Markup | null;
};

/**
 * Pages have no scripts, load nothing, and cannot be framed. Forms can only be sent to this host. A
 * redirect to another host after a form would violate `form-action`, so forms are answered with
 * pages or redirects of this host.
 */
export const PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy':
    `default-src 'none'; style-src '${STYLE_HASH}'; img-src data:; form-action 'self'; ` +
    "frame-ancestors 'none'; base-uri 'none'",
  'x-frame-options': 'DENY',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
  // RFC 9700 section 4.2: addresses contain codes and states, so they must not leak as referrers.
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
