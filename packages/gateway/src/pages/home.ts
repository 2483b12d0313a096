/** The start page of the auth host. */
import type { Identity } from '@berth/wire/gateway';
import { html } from './html.ts';
import { renderPage } from './layout.ts';

export function homePage(identity: Identity | null): string {
  if (identity === null)
    return renderPage({
      title: 'Signed out',
      body: html`<h1>You are signed out</h1>
<p>Nobody is signed in to Berth in this browser.</p>
<p class="soft">You may still be signed in at your identity provider. On a shared computer, sign out there too.</p>
<div class="buttons"><a class="button first" href="/_oauth/login">Sign in</a></div>`,
    });
  return renderPage({
    title: 'Signed in',
    body: html`<h1>You are signed in</h1>
<p>You are signed in as <span class="mark">${identity.email}</span>. To use a project, open its address.</p>
<div class="buttons"><a class="button" href="/_oauth/devices">Your devices</a></div>
<form class="buttons" method="post" action="/_oauth/logout"><button class="button" type="submit">Sign out everywhere</button></form>`,
  });
}
