/**
 * All errors of logins, activations and pages. Each row says what is wrong and what to do. The code
 * appears in the log and in the audit log. Pages never repeat data from the request.
 */
import { CodedError } from '@berth/kit/coded-error';

type Row = {
  status: 400 | 401 | 403 | 404 | 409 | 413 | 429 | 503;
  title: string;
  what: string;
  todo: string;
  /** Label of the button that leads to the Refusal's `retryPath`. */
  action: string;
};

export const REFUSALS = {
  // The provider's answer does not belong to a login that this browser started.
  state_missing: {
    status: 400,
    title: 'This sign-in link is incomplete',
    what: 'The address does not contain the data that the identity provider should have sent.',
    todo: 'Start the sign-in again; do not reload or bookmark this address.',
    action: 'Start again',
  },
  state_unknown: {
    status: 400,
    title: 'This sign-in is no longer valid',
    what: 'It was already completed, took longer than 15 minutes, or started in another browser.',
    todo:
      'Start the sign-in again. If this page comes back, check that your browser accepts cookies ' +
      'from this site.',
    action: 'Start again',
  },
  provider_mismatch: {
    status: 400,
    title: 'The answer came from the wrong provider',
    what:
      'The sign-in started with one identity provider, but another one answered. Nobody was ' +
      'signed in.',
    todo: 'Start the sign-in again. If it happens twice, tell your administrator.',
    action: 'Start again',
  },
  issuer_mismatch: {
    status: 400,
    title: 'The answer came from the wrong provider',
    what: 'The answer names a different issuer than expected. Nobody was signed in.',
    todo: 'Start the sign-in again. If it happens twice, tell your administrator.',
    action: 'Start again',
  },
  code_missing: {
    status: 400,
    title: 'This sign-in link is incomplete',
    what: 'The identity provider did not send a code.',
    todo: 'Start the sign-in again.',
    action: 'Start again',
  },
  code_refused: {
    status: 400,
    title: 'The identity provider did not accept this sign-in',
    what: 'The code was already used or has expired.',
    todo: 'Start the sign-in again.',
    action: 'Start again',
  },
  identity_refused: {
    status: 400,
    title: 'The identity could not be verified',
    what:
      'The identity provider sent an invalid identity: its signature, audience, issuer, time or ' +
      'nonce is wrong.',
    todo: 'Start the sign-in again. If it happens twice, tell your administrator.',
    action: 'Start again',
  },
  // The provider or the person refused.
  provider_denied: {
    status: 403,
    title: 'You were not signed in',
    what: 'The sign-in was cancelled, or the identity provider refused it.',
    todo: 'Start the sign-in again when you are ready.',
    action: 'Start again',
  },
  scope_refused: {
    status: 403,
    title: 'The identity provider does not share your e-mail address',
    what: 'It does not grant this platform the scopes that a sign-in requires.',
    todo:
      'Tell your administrator that the OIDC client at the provider needs the scopes openid, ' +
      'email and profile.',
    action: 'Start again',
  },
  email_missing: {
    status: 403,
    title: 'Your account has no usable e-mail address',
    what:
      'The identity provider sent no e-mail address, and Berth identifies people by their ' +
      'address.',
    todo:
      'Add an e-mail address to your account at the identity provider and allow sharing it. Then ' +
      'start again.',
    action: 'Start again',
  },
  email_unverified: {
    status: 403,
    title: 'Your e-mail address is not verified',
    what: 'According to the identity provider, the address of your account was never confirmed.',
    todo: 'Confirm the address at the identity provider, then start again.',
    action: 'Start again',
  },
  email_not_allowed: {
    status: 403,
    title: 'Your account may not sign in here',
    what: 'Your identity is verified, but this platform allows only certain e-mail addresses.',
    todo: 'Use another account, or ask your administrator to allow your address.',
    action: 'Start again',
  },
  user_disabled: {
    status: 403,
    title: 'Your account is disabled',
    what: 'An administrator has disabled this account.',
    todo: 'Ask your administrator if you think this is a mistake.',
    action: 'Start again',
  },
  user_deleted: {
    status: 403,
    title: 'Your account was just deleted',
    what: 'An administrator deleted this account a moment ago and ended its sessions.',
    todo: 'If you should still have access, wait a minute, then start again.',
    action: 'Start again',
  },
  // The request is invalid.
  provider_unknown: {
    status: 404,
    title: 'Unknown identity provider',
    what: 'The address names an identity provider that is not configured here.',
    todo: 'Start the sign-in again.',
    action: 'Start again',
  },
  session_ended: {
    status: 401,
    title: 'You are no longer signed in',
    what: 'Your session ended while this page was open.',
    todo: 'Sign in again to continue.',
    action: 'Sign in',
  },
  form_expired: {
    status: 403,
    title: 'This form is no longer valid',
    what: 'It was open for too long, or you signed in again in the meantime.',
    todo: 'Go back and try again.',
    action: 'Start again',
  },
  too_many_cookies: {
    status: 400,
    title: 'Too many cookies',
    what:
      'Your browser sends more session cookies for this site than Berth checks. An application ' +
      'under the same domain may have set them.',
    todo:
      'This answer deleted them. Open the page again. If this page comes back, delete the ' +
      'cookies of this site and of its parent domain.',
    action: 'Try again',
  },
  bad_form: {
    status: 400,
    title: 'This form could not be read',
    what: 'A required field is missing or invalid.',
    todo: 'Go back and try again.',
    action: 'Start again',
  },
  form_too_large: {
    status: 413,
    title: 'The form is too large',
    what: 'The request is larger than any form of this site.',
    todo: 'Go back and try again.',
    action: 'Start again',
  },
  // Device flow.
  user_code_unknown: {
    status: 404,
    title: 'This code is not valid',
    what: 'It was mistyped, was already used, or is older than 10 minutes.',
    todo: 'Compare it with the code that your device shows, or let the device request a new code.',
    action: 'Start again',
  },
  too_many_codes: {
    status: 429,
    title: 'Too many wrong codes',
    what: 'Too many wrong codes were entered from your address.',
    todo: 'Wait one minute, then type the code that your device shows.',
    action: 'Start again',
  },
  too_many_devices: {
    status: 409,
    title: 'Too many devices',
    what: 'Your account has the maximum number of connected devices.',
    todo: 'Disconnect a device that you no longer use, then open the link of your device again.',
    action: 'Show your devices',
  },
  // Temporary problems.
  provider_unavailable: {
    status: 503,
    title: 'The identity provider does not respond',
    what: 'Sign-in is not possible at the moment. People who are already signed in are not affected.',
    todo: 'Try again in a moment.',
    action: 'Try again',
  },
  client_refused: {
    status: 503,
    title: 'The identity provider refused this platform',
    what:
      'It rejects the configured client id or client secret. People who are already signed in ' +
      'are not affected.',
    todo:
      'Tell your administrator to compare the OIDC client at the provider with the settings of ' +
      'the gateway.',
    action: 'Try again',
  },
  control_plane_unavailable: {
    status: 503,
    title: 'The platform does not respond',
    what:
      'A required part of the platform is down. People who are already signed in are not ' +
      'affected.',
    todo: 'Try again in a moment.',
    action: 'Try again',
  },
  policy_unknown: {
    status: 503,
    title: 'Not ready yet',
    what: 'The gateway has just started and has not loaded its access policy yet.',
    todo: 'Try again in a moment.',
    action: 'Try again',
  },
  internal: {
    status: 503,
    title: 'Internal error',
    what: 'An unexpected error occurred. The gateway logged it under the reference below.',
    todo: 'Try again in a moment. If it happens again, give the reference to your administrator.',
    action: 'Try again',
  },
  no_provider: {
    status: 503,
    title: 'Sign-in is not configured',
    what: 'No identity provider is configured.',
    todo: 'Ask your administrator to configure one.',
    action: 'Try again',
  },
} as const satisfies Record<string, Row>;
export type RefusalCode = keyof typeof REFUSALS;

/**
 * Thrown by a check. install.ts answers with an error page. `detail` appears only in the log and
 * contains no secret.
 */
export class Refusal extends CodedError<RefusalCode> {
  override name = 'Refusal';
  /** Address of the page's button, or null for a page without a button. */
  readonly retryPath: string | null;
  readonly detail: string | null;
  constructor(
    code: RefusalCode,
    options: { retryPath?: string | null; detail?: string; cause?: unknown } = {},
  ) {
    super(code, options.detail === undefined ? code : `${code}: ${options.detail}`, {
      cause: options.cause,
    });
    this.retryPath = options.retryPath ?? null;
    this.detail = options.detail ?? null;
  }
}
