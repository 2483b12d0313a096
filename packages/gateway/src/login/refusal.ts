/**
 * Every way a login, an activation or a page of the gateway can end otherwise than wished: one row each, with what is wrong and what
 * to do, as a person would say it. The code stands in the log and in the audit log; nothing that was sent is repeated to anybody.
 */
type Row = {
  status: 400 | 401 | 403 | 404 | 409 | 413 | 429 | 503;
  title: string;
  what: string;
  todo: string;
  /** What the button says, where `again` of the Refusal leads on. */
  action: string;
};

export const REFUSALS = {
  // The answer that came back does not belong to a login this browser began.
  state_missing: {
    status: 400,
    title: 'This sign-in link is not complete',
    what: 'The address lacks what the identity provider should have sent along.',
    todo: 'Start the sign-in again; do not reload or bookmark this address.',
    action: 'Start again',
  },
  state_unknown: {
    status: 400,
    title: 'This sign-in is no longer valid',
    what: 'It was finished already, took longer than 15 minutes, or was begun in another browser.',
    todo: 'Start the sign-in again. If this page comes back, check that your browser accepts cookies from this site.',
    action: 'Start again',
  },
  provider_mismatch: {
    status: 400,
    title: 'The answer came from the wrong provider',
    what: 'The sign-in was begun with one identity provider and answered by another. Nobody was signed in.',
    todo: 'Start the sign-in again. If it happens twice, tell your administrator.',
    action: 'Start again',
  },
  issuer_mismatch: {
    status: 400,
    title: 'The answer came from the wrong provider',
    what: 'The answer names another issuer than the one that was asked. Nobody was signed in.',
    todo: 'Start the sign-in again. If it happens twice, tell your administrator.',
    action: 'Start again',
  },
  code_missing: {
    status: 400,
    title: 'This sign-in link is not complete',
    what: 'The identity provider sent no code.',
    todo: 'Start the sign-in again.',
    action: 'Start again',
  },
  code_refused: {
    status: 400,
    title: 'The identity provider did not accept this sign-in',
    what: 'The code was used already or is too old.',
    todo: 'Start the sign-in again.',
    action: 'Start again',
  },
  identity_refused: {
    status: 400,
    title: 'The identity could not be verified',
    what: 'What the identity provider said about you does not hold: its signature, audience, issuer, time or nonce is wrong.',
    todo: 'Start the sign-in again. If it happens twice, tell your administrator.',
    action: 'Start again',
  },
  // The provider or the person said no.
  provider_denied: {
    status: 403,
    title: 'You were not signed in',
    what: 'The sign-in was cancelled, or the identity provider refused it.',
    todo: 'Start again whenever you like.',
    action: 'Start again',
  },
  scope_refused: {
    status: 403,
    title: 'The identity provider does not tell your e-mail address',
    what: 'It does not give this platform the scopes that signing in needs.',
    todo: 'Tell your administrator: the client at the provider needs the scopes openid, email and profile.',
    action: 'Start again',
  },
  email_missing: {
    status: 403,
    title: 'Your account has no e-mail address we can use',
    what: 'The identity provider did not tell an address, and without one we cannot know who you are.',
    todo: 'Give your account at the identity provider an e-mail address and allow it to be shared, then start again.',
    action: 'Start again',
  },
  email_unverified: {
    status: 403,
    title: 'Your e-mail address is not verified',
    what: 'The identity provider says that the address of your account was never confirmed.',
    todo: 'Confirm the address at the identity provider, then start again.',
    action: 'Start again',
  },
  email_not_allowed: {
    status: 403,
    title: 'Your account may not sign in here',
    what: 'You are who you say, but this platform lets in certain addresses only.',
    todo: 'Use another account, or ask your administrator to allow yours.',
    action: 'Start again',
  },
  user_disabled: {
    status: 403,
    title: 'Your account is switched off',
    what: 'An administrator has disabled this account.',
    todo: 'Ask your administrator if you think this is a mistake.',
    action: 'Start again',
  },
  user_deleted: {
    status: 403,
    title: 'Your account was deleted a moment ago',
    what: 'An administrator has just deleted this account and ended its sessions.',
    todo: 'If you should have access, wait a minute, then start again.',
    action: 'Start again',
  },
  // Asked in a way that cannot be answered.
  provider_unknown: {
    status: 404,
    title: 'There is no such identity provider',
    what: 'This address names a provider that is not set up here.',
    todo: 'Start the sign-in again.',
    action: 'Start again',
  },
  session_ended: {
    status: 401,
    title: 'You are not signed in any more',
    what: 'Your session has ended while this page was open.',
    todo: 'Sign in again to go on where you were.',
    action: 'Sign in',
  },
  form_expired: {
    status: 403,
    title: 'This form is no longer valid',
    what: 'It was open for too long, or you signed in again since.',
    todo: 'Go back and try once more.',
    action: 'Start again',
  },
  too_many_cookies: {
    status: 400,
    title: 'Too many cookies',
    what: 'Your browser sends more session cookies of this site than we check. An application under the same domain may have set them.',
    todo: 'Delete the cookies of this site and of its parent domain in your browser, then open the page again. Tell your administrator.',
    action: 'Try again',
  },
  bad_form: {
    status: 400,
    title: 'This form could not be read',
    what: 'Something is missing in what was sent.',
    todo: 'Go back and try once more.',
    action: 'Start again',
  },
  form_too_large: {
    status: 413,
    title: 'That is too much',
    what: 'What was sent is larger than any form of ours.',
    todo: 'Go back and try once more.',
    action: 'Start again',
  },
  // Device flow.
  user_code_unknown: {
    status: 404,
    title: 'This code is not known',
    what: 'It was mistyped, used already, or is older than ten minutes.',
    todo: 'Compare it with what your device shows, or let the device ask for a new one.',
    action: 'Start again',
  },
  too_many_codes: {
    status: 429,
    title: 'Too many wrong codes',
    what: 'Several codes that do not exist were tried from your address.',
    todo: 'Wait a minute, then type the code that your device shows.',
    action: 'Start again',
  },
  too_many_devices: {
    status: 409,
    title: 'Too many devices',
    what: 'As many devices as there may be are connected to your account.',
    todo: 'Disconnect one that you do not use any more, then open the link of your device again.',
    action: 'See them',
  },
  // Not now.
  provider_unavailable: {
    status: 503,
    title: 'The identity provider does not answer',
    what: 'Signing in is not possible right now. Whoever is signed in already is not affected.',
    todo: 'Try again in a moment.',
    action: 'Try again',
  },
  client_refused: {
    status: 503,
    title: 'The identity provider refused this platform',
    what: 'It does not accept the client id or the client secret that is set up here. Whoever is signed in already is not affected.',
    todo: 'Tell your administrator: the client at the provider and the settings of the gateway must agree.',
    action: 'Try again',
  },
  control_plane_unavailable: {
    status: 503,
    title: 'The platform does not answer',
    what: 'This needs a part of the platform that is away right now. Whoever is signed in already is not affected.',
    todo: 'Try again in a moment.',
    action: 'Try again',
  },
  policy_unknown: {
    status: 503,
    title: 'Not ready yet',
    what: 'The gateway has just started and does not know yet who may come in.',
    todo: 'Try again in a moment.',
    action: 'Try again',
  },
  internal: {
    status: 503,
    title: 'Something went wrong on our side',
    what: 'It was logged.',
    todo: 'Try again in a moment. If it happens again, tell your administrator.',
    action: 'Try again',
  },
  no_provider: {
    status: 503,
    title: 'Signing in is not set up',
    what: 'No identity provider is configured.',
    todo: 'Ask your administrator to set one up.',
    action: 'Try again',
  },
} as const satisfies Record<string, Row>;
export type RefusalCode = keyof typeof REFUSALS;

/** Thrown by a check; answered with a page by install.ts. `detail` is for the log alone and holds no secret. */
export class Refusal extends Error {
  override name = 'Refusal';
  readonly code: RefusalCode;
  /** Where “start again” leads; null: nowhere. */
  readonly again: string | null;
  readonly detail: string | null;
  constructor(code: RefusalCode, options: { again?: string | null; detail?: string; cause?: unknown } = {}) {
    super(options.detail === undefined ? code : `${code}: ${options.detail}`, { cause: options.cause });
    this.code = code;
    this.again = options.again ?? null;
    this.detail = options.detail ?? null;
  }
}
