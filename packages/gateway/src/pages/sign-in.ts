/** Pages for sign-in and sign-out. */
import { html } from './html.ts';
import { renderPage } from './layout.ts';

export function choicePage(options: {
  providers: readonly { label: string; href: string }[];
  host: string | null;
}): string {
  const { providers, host } = options;
  return renderPage({
    title: 'Sign in',
    body: html`<h1>Sign in</h1>
<p>${host === null ? 'Choose how you want to sign in.' : html`Choose how you want to sign in to continue to <span class="mark">${host}</span>.`}</p>
<ul class="buttons">${providers.map((p) => html`<li><a class="button" href="${p.href}">Continue with ${p.label}</a></li>`)}</ul>`,
  });
}

/** Renders the page after a form that arrived without a session. */
export function lostFormPage(href: string): string {
  return renderPage({
    title: 'Your form was not sent',
    tone: 'bad',
    body: html`<h1>Your form was not sent</h1>
<p>You were no longer signed in. What you typed did not reach the application.</p>
<p>Sign in. Then you are back at the page of the form: fill it in and send it again.</p>
<div class="buttons"><a class="button first" href="${href}">Sign in</a></div>`,
  });
}

/**
 * `provider` has the address that ends the provider's own session; null if there is no such
 * address.
 */
export function signedOutPage(provider: { label: string; href: string } | null): string {
  return renderPage({
    title: 'Signed out',
    tone: 'good',
    body: html`<h1>You are signed out</h1>
<p>Your session has ended here and at every project.</p>
<p class="soft">You may still be signed in at your identity provider. On a shared computer, sign out there too.</p>
<div class="buttons">${provider === null ? null : html`<a class="button" href="${provider.href}">Sign out at ${provider.label} too</a>`}
<a class="button" href="/_oauth/login">Sign in again</a></div>`,
  });
}
