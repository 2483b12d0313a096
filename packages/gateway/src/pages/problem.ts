/** Pages for what went otherwise than wished: what is wrong, what to do, and what to quote to an administrator. */
import { REFUSALS, type RefusalCode } from '../login/refusal.ts';
import { html } from './html.ts';
import { renderPage } from './layout.ts';

export type ProblemPage = {
  title: string;
  what: string;
  todo: string;
  /** Stands in the log too. */
  reference: string;
  /** A way out that was checked to be one of ours. */
  action?: { href: string; label: string } | null;
};

/** Also for the pages of other parts of the gateway. */
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

export function refusalPage(code: RefusalCode, reference: string, again: string | null): string {
  const { title, what, todo, action } = REFUSALS[code];
  return problemPage({ title, what, todo, reference, action: again === null ? null : { href: again, label: action } });
}

/** The nonce that /verify left at this host did not come back: redirecting once more would go round for ever. */
export function cookiesBlockedPage(reference: string, again: string): string {
  return problemPage({
    title: 'Your browser does not keep our cookie',
    what: 'Signing in needs one cookie of this site, and it did not come back. Cookies may be blocked, the sign-in may have taken too long, or the link comes from another browser.',
    todo: 'Allow cookies for this site, then open the page again.',
    reference,
    action: { href: again, label: 'Open the page again' },
  });
}
