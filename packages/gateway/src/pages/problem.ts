/** Error pages: the problem, the next step, and a reference for the administrator. */
import { REFUSALS, type RefusalCode } from '../login/refusal.ts';
import { html } from './html.ts';
import { renderPage } from './layout.ts';

export type ProblemPage = {
  title: string;
  what: string;
  todo: string;
  /** Reference that also appears in the log. */
  reference: string;
  /** Button that leads to a checked address of this platform. */
  action?: { href: string; label: string } | null;
};

/** Renders an error page, for all parts of the gateway. */
export function problemPage(page: ProblemPage): string {
  return renderPage({
    title: page.title,
    tone: 'bad',
    body: html`<h1>${page.title}</h1>
<p>${page.what}</p>
<p>${page.todo}</p>
${page.action ? html`<div class="buttons"><a class="button first" href="${page.action.href}">${page.action.label}</a></div>` : null}`,
    footer: html`<p>Reference for your administrator: <span class="mark">${page.reference}</span></p>`,
  });
}

export function refusalPage(
  code: RefusalCode,
  reference: string,
  retryPath: string | null,
): string {
  const { title, what, todo, action } = REFUSALS[code];
  return problemPage({
    title,
    what,
    todo,
    reference,
    action: retryPath === null ? null : { href: retryPath, label: action },
  });
}

/**
 * Renders the page for a browser that did not send back the nonce cookie of /verify. Another
 * redirect would cause an endless loop.
 */
export function cookiesBlockedPage(reference: string, pageUrl: string): string {
  return problemPage({
    title: 'Your browser does not store our cookie',
    what:
      'The sign-in requires a cookie of this site, but your browser did not send it back. ' +
      'Cookies may be blocked, the sign-in may have taken too long, or the link may come from ' +
      'another browser.',
    todo: 'Allow cookies for this site, then open the page again.',
    reference,
    action: { href: pageUrl, label: 'Open the page again' },
  });
}
