/** Errors of the command line, and the exit code of every error. */
import { defined } from '@berth/kit/defined';
import { messageOf } from '@berth/kit/message-of';
import { ApiError, UnreachableError } from '@berth/wire/client';
import type { ProblemDocument } from '@berth/wire/errors';
import { oneLine } from './output/text.ts';

export const EXIT = {
  done: 0,
  refused: 1,
  usage: 2,
  unreachable: 3,
  signIn: 4,
  interrupted: 130,
} as const;
/** An exit code of EXIT, or the exit code of a command that `berth run` started. */
export type Exit = number;

/** An error with its exit code. `next`: what to do. `shown`: the text is already on stderr. */
export class CliError extends Error {
  override name = 'CliError';
  readonly exit: Exit;
  readonly code: string;
  readonly next: string | undefined;
  readonly shown: boolean;
  constructor(
    exit: Exit,
    code: string,
    message: string,
    more: { next?: string; shown?: boolean; cause?: unknown } = {},
  ) {
    super(message, more.cause === undefined ? {} : { cause: more.cause });
    this.exit = exit;
    this.code = code;
    this.next = more.next;
    this.shown = more.shown ?? false;
  }
}

export const usage = (message: string, next?: string, cause?: unknown): CliError =>
  new CliError(EXIT.usage, 'usage', message, { ...defined({ next }), cause });
export const signInNeeded = (message: string, next = 'berth login'): CliError =>
  new CliError(EXIT.signIn, 'signed_out', message, { next });
export const refused = (code: string, message: string, next?: string): CliError =>
  new CliError(EXIT.refused, code, message, next === undefined ? {} : { next });

/**
 * Returns the original error: the API client wraps every error as unreachable, even if this client
 * refused to send the request.
 */
export function reasonOf(error: unknown): unknown {
  return error instanceof UnreachableError &&
    (error.cause instanceof CliError || error.cause instanceof ApiError)
    ? error.cause
    : error;
}

/** Returns whether the server is temporarily unavailable, or a proxy cannot reach it. */
export function isAway(given: unknown): boolean {
  const error = reasonOf(given);
  return (
    error instanceof UnreachableError ||
    (error instanceof ApiError && [502, 503, 504].includes(error.status))
  );
}

function exitOf(error: unknown): Exit {
  if (error instanceof CliError) return error.exit;
  if (isAway(error)) return EXIT.unreachable;
  if (!(error instanceof ApiError)) return EXIT.refused;
  // An answer without a problem document is from a proxy and not from a control plane.
  if (error.problem === null) return EXIT.unreachable;
  if (error.status === 401 || error.status === 403) return EXIT.signIn;
  return EXIT.refused;
}

export const isPage = (text: string): boolean => /^\s*</.test(text);

const ADDRESS = 'check the address (berth context list), and the proxy in between';
const CONTROL_PLANE =
  'on the machine of the control plane, look at its service and its log (docs/operating.md)';
/** Advice for an error, by the error code or name that node:http reports. */
const ADVICE: readonly (readonly [RegExp, string])[] = [
  [/^(ECONNREFUSED|ECONNRESET|TimeoutError)$/, CONTROL_PLANE],
  [
    /^(ENOTFOUND|EAI_AGAIN)$/,
    'check the name in the address (berth context list) and the DNS of this machine',
  ],
  [
    /^(ENETUNREACH|EHOSTUNREACH|ETIMEDOUT)$/,
    'check the network of this machine, a VPN and the firewall',
  ],
  [
    /^CERT_HAS_EXPIRED$/,
    'renew the certificate at the reverse proxy (docs/operating.md), and check the clock of ' +
      'this machine',
  ],
  [
    /^ERR_TLS_CERT_ALTNAME_INVALID$/,
    'the certificate is for another name: check the address (berth context list)',
  ],
  [
    /SELF_SIGNED|UNABLE_TO_(VERIFY|GET)/,
    'if your company has its own certificate authority: NODE_EXTRA_CA_CERTS=FILE berth …',
  ],
  [
    /^(EPROTO|ERR_SSL_.*)$/,
    'the port speaks no TLS: check whether the address begins with https or http',
  ],
];

function adviceFor(error: UnreachableError): string {
  const { code, name } = (error.cause ?? {}) as { code?: unknown; name?: string };
  const causeCode = typeof code === 'string' ? code : (name ?? '');
  return ADVICE.find(([pattern]) => pattern.test(causeCode))?.[1] ?? ADDRESS;
}

/** A failure as text for people and as JSON for programs. */
export type Failure = {
  exit: Exit;
  lines: string[];
  problem: Partial<ProblemDocument> & { code: string; exit_code: number; next?: string };
};

export function failureOf(given: unknown): Failure {
  const error = reasonOf(given);
  const exit = exitOf(error);
  const about = (code: string, title: string, detail: string, next?: string): Failure => ({
    exit,
    lines: [detail, ...(next === undefined ? [] : [`next: ${next}`])],
    problem: {
      type: 'about:blank',
      title,
      detail,
      code,
      exit_code: exit,
      ...defined({ next }),
    },
  });
  if (error instanceof CliError)
    return {
      ...about(error.code, error.message, error.message, error.next),
      ...defined({ lines: error.shown ? [] : undefined }),
    };
  if (error instanceof UnreachableError) {
    // Replace Node's timeout message, which does not say that the server was slow.
    const reason = error.message.replace(
      'The operation was aborted due to timeout',
      'no answer within the time limit of the request',
    );
    return about(
      'unreachable',
      'Berth could not be reached',
      `Berth could not be reached: ${reason}`,
      adviceFor(error),
    );
  }
  if (error instanceof ApiError) return apiFailure(error, exit, about);
  const message = messageOf(error);
  return about('internal', 'The command line failed', `the command line failed: ${message}`);
}

function apiFailure(
  error: ApiError,
  exit: Exit,
  about: (code: string, title: string, detail: string, next?: string) => Failure,
): Failure {
  const { problem } = error;
  if (problem === null) {
    const text = isPage(error.message)
      ? 'a page instead of an answer of the API'
      : oneLine(error.message);
    return about(
      error.code,
      `HTTP ${error.status}`,
      `the address answered ${error.status}: ${text}`,
      error.status >= 500 ? CONTROL_PLANE : ADDRESS,
    );
  }
  const next = exit === EXIT.signIn && error.status === 401 ? 'berth login' : undefined;
  const detail =
    problem.detail === '' || problem.detail === problem.title
      ? problem.title
      : `${problem.title}: ${problem.detail}`;
  return {
    exit,
    lines: [
      `${detail} (${problem.code})`,
      ...(problem.errors ?? [])
        .filter((e) => !detail.includes(`${e.field}: ${e.message}`))
        .map((e) => `  ${e.field}: ${e.message}`),
      ...(problem.retry_after === undefined ? [] : [`try again in ${problem.retry_after} s`]),
      ...(next === undefined ? [] : [`next: ${next}`]),
    ],
    problem: { ...problem, exit_code: exit, ...defined({ next }) },
  };
}
