/** The pages of the device flow (RFC 8628 section 3.3) and of a person's device tokens. */
import type { DeviceCodeSeen, DeviceToken, Identity } from '@berth/wire/gateway';
import { html, type Markup } from './html.ts';
import { renderPage } from './layout.ts';

/**
 * Formats a user code in two groups of four characters, which are easier to read aloud and to
 * compare.
 */
export const formatUserCode = (code: string): string =>
  code.length === 8 ? `${code.slice(0, 4)}-${code.slice(4)}` : code;

const account = (identity: Identity): Markup =>
  html`Signed in as <span class="mark">${identity.email}</span> · <form method="post" action="/_oauth/logout"><button class="link" type="submit">Sign out</button></form>`;

const when = (time: string): string => `${time.slice(0, 16).replace('T', ' ')} UTC`;

/** `wrong` describes the problem of the code that was entered, if any. */
export function activatePage(
  identity: Identity,
  wrong: { title: string; what: string; todo: string } | null,
): string {
  return renderPage({
    title: 'Connect a device',
    tone: wrong === null ? 'plain' : 'bad',
    body: html`<h1>${wrong?.title ?? 'Connect a device'}</h1>
${wrong === null ? html`<p>Type the code that your device or command line shows.</p>` : html`<p role="alert">${wrong.what} ${wrong.todo}</p>`}
<form method="get" action="/_oauth/device/activate">
<input type="hidden" name="from" value="form">
<label for="code">Code</label>
<input type="text" id="code" name="code" required maxlength="20" autocomplete="off" autocapitalize="characters" spellcheck="false" placeholder="XXXX-XXXX" autofocus>
<button class="button first" type="submit">Continue</button>
</form>`,
    footer: account(identity),
  });
}

export function confirmPage(options: {
  identity: Identity;
  seen: DeviceCodeSeen;
  csrf: string;
}): string {
  const { identity, seen, csrf } = options;
  return renderPage({
    title: 'Connect this device?',
    body: html`<h1>Connect this device?</h1>
<p>${
      seen.scope === 'projects api'
        ? html`It will be able to open every project and use the API of Berth with your role, as <span class="mark">${identity.email}</span>, for 90 days.`
        : html`It will be able to open every project as <span class="mark">${identity.email}</span> for 90 days. It will not be able to use the API of Berth.`
    } Continue only if you started this yourself and your device shows the same code.</p>
<strong class="code">${formatUserCode(seen.user_code)}</strong>
<dl>
<dt>Program</dt><dd>${seen.user_agent === '' ? 'a program without a name' : seen.user_agent}</dd>
<dt>Address</dt><dd>${seen.address === '' ? 'an unknown address' : seen.address}</dd>
<dt>Time</dt><dd>${when(seen.requested_at)}</dd>
</dl>
<form method="post" action="/_oauth/device/activate">
<input type="hidden" name="csrf" value="${csrf}">
<input type="hidden" name="user_code" value="${seen.user_code}">
<div class="buttons row">
<button class="button" type="submit" name="decision" value="deny">Refuse</button>
<button class="button first" type="submit" name="decision" value="approve">Connect</button>
</div>
</form>`,
    footer: account(identity),
  });
}

export function decidedPage(identity: Identity, approved: boolean): string {
  return renderPage({
    title: approved ? 'Device connected' : 'Device refused',
    tone: approved ? 'good' : 'plain',
    body: approved
      ? html`<h1>The device is connected</h1>
<p>You can close this page and return to the device. It continues within a few seconds.</p>
<p class="soft">You can end its access at any time at <a href="/_oauth/devices">your devices</a>.</p>`
      : html`<h1>The device was refused</h1>
<p>It gets no access. If you did not start this yourself, somebody may have tried to use your account. Tell your administrator.</p>`,
    footer: account(identity),
  });
}

export function devicesPage(options: {
  identity: Identity;
  tokens: readonly DeviceToken[];
  csrf: string;
}): string {
  const { identity, tokens, csrf } = options;
  const row = (token: DeviceToken): Markup => {
    const name = token.user_agent === '' ? 'A program without a name' : token.user_agent;
    return html`<li><div><strong>${name}</strong>
<span class="soft">${token.last_used_at === null ? 'Never used' : `Last used ${when(token.last_used_at)}`}</span>
<span class="soft">Connected ${when(token.created_at)} from ${token.address === '' ? 'an unknown address' : token.address} · ends ${token.expires_at.slice(0, 10)}</span>
<span class="soft">${token.scope === 'projects api' ? 'Opens projects and the API of Berth' : 'Opens projects'}</span></div>
<form method="post" action="/_oauth/devices"><input type="hidden" name="csrf" value="${csrf}"><input type="hidden" name="id" value="${token.id}"><button class="button small danger" type="submit" aria-label="Disconnect ${name}">Disconnect</button></form></li>`;
  };
  return renderPage({
    title: 'Your devices',
    wide: true,
    body: html`<h1>Your devices</h1>
${
  tokens.length === 0
    ? html`<p>No device or command line is connected to your account.</p>`
    : html`<p>These devices and command lines act as you. Disconnect devices that you do not recognize. This takes effect within seconds.</p>
<ul class="devices">${tokens.map(row)}</ul>`
}
<p><a href="/_oauth/device/activate">Connect a device</a></p>`,
    footer: account(identity),
  });
}
