/**
 * Failures of tasks (FAILURES in wire/errors): the error class, and one table per tool that maps
 * output to failure codes. The tools have no error codes, so the tables match their messages.
 * test/failures.test.ts has real output for every row.
 */
import { CodedError } from '@berth/kit/coded-error';
import { ExecError } from '@berth/kit/exec';
import { messageOf } from '@berth/kit/message-of';
import { FAILURES, type FailureCode } from '@berth/wire/errors';
import type { TaskError, TaskReport } from '@berth/wire/task';
import { terminalText } from './terminal-text.ts';

/** A failure with a code. The message is the code’s sentence followed by the detail. */
export class TaskFailure extends CodedError<FailureCode> {
  override name = 'TaskFailure';
  /** The detail without the code’s sentence. */
  readonly detail: string;
  /** Additional fields for the task's report. */
  readonly report: Pick<TaskReport, 'host_keys'>;
  constructor(
    code: FailureCode,
    detail: string,
    options?: ErrorOptions & { report?: Pick<TaskReport, 'host_keys'> },
  ) {
    super(code, detail === '' ? `${FAILURES[code]}.` : `${FAILURES[code]}: ${detail}`, options);
    this.detail = detail;
    this.report = options?.report ?? {};
  }
}

export type FailureRow = readonly [pattern: RegExp, code: FailureCode];

/** Failures of the machine, which every tool can report. */
export const MACHINE_FAILURES: readonly FailureRow[] = [
  [/no space left on device|disk quota exceeded|out of diskspace/i, 'disk_full'],
  [
    /cannot connect to the docker daemon|error during connect|is the docker daemon running|dial unix .*(no such file|connection refused|permission denied)/i,
    'engine_unavailable',
  ],
  // The engine stopped during a build.
  [/failed to solve: unavailable|code = unavailable|transport is closing/i, 'engine_unavailable'],
];

/**
 * Failures of git. The order matters: the message of an unknown host also contains "could not read
 * from remote repository".
 */
export const GIT_FAILURES: readonly FailureRow[] = [
  // This row is first because the message repeats the ssh options, where "ConnectTimeout" is not a
  // timeout.
  [/cannot run ssh/i, 'git_failed'],
  ...MACHINE_FAILURES,
  // During checkout, git reports no reason. The folder is new and belongs to the agent, so the disk
  // must be full.
  [/unable to write (file|new)/i, 'disk_full'],
  [
    /remote branch .* not found in upstream|couldn't find remote ref refs\/heads/i,
    'git_unknown_branch',
  ],
  [/unadvertised object|server does not allow request for/i, 'git_commit_refused'],
  [
    /not our ref|no such remote ref [0-9a-f]{40}|couldn't find remote ref [0-9a-f]{40}/i,
    'git_unknown_commit',
  ],
  // ssh continues without the key, so this warning precedes the refusal.
  [/unprotected private key file|bad permissions/i, 'git_key_readable'],
  [/operation too slow|timed out|timeout/i, 'git_timeout'],
  [
    /could not resolve host|name or service not known|temporary failure in name resolution|connection refused|failed to connect|no route to host|network is unreachable|couldn't connect|connection reset|empty reply from server|ssl|certificate|host key verification failed|connection closed by/i,
    'git_unreachable',
  ],
  [
    /could not read username|could not read password|authentication failed|terminal prompts disabled|permission denied|invalid credentials|access denied|the requested url returned error: 40[13]/i,
    'git_credentials',
  ],
  [
    /repository .*not found|the requested url returned error: 404|does not appear to be a git repository|repository .* does not exist|project .* could not be found|not valid: is this a git repository/i,
    'git_repository_not_found',
  ],
];

/** Checked before REGISTRY_UNREACHABLE, because a refusal often matches that pattern too. */
const REGISTRY_REFUSED =
  /unauthorized|authentication required|no basic auth credentials|denied|insufficient_scope|forbidden|incorrect username or password|unexpected status[^\n]*(40[0135]|413|429)|parsing http 4\d\d response|blob upload (unknown|invalid)|manifest invalid|name unknown: repository name not known to registry/i;
/**
 * The registry answers but cannot work, most often because its disk is full. A proxy in front of it
 * sends 502, 503 and 504.
 */
const REGISTRY_FAILED =
  /unexpected status[^\n]*50[07]|received unexpected http status: 50[07]|parsing http 50[07] response/i;
const REGISTRY_UNREACHABLE =
  /connection refused|no such host|i\/o timeout|context deadline exceeded|network is unreachable|no route to host|connection reset|server gave http response to https client|tls: |x509: |client\.timeout|\bEOF\b|unexpected status[^\n]*50[0-9]|received unexpected http status: 5\d\d|parsing http 5\d\d response|server misbehaving/i;

export const REGISTRY_FAILURES: readonly FailureRow[] = [
  ...MACHINE_FAILURES,
  [REGISTRY_REFUSED, 'registry_refused'],
  [REGISTRY_FAILED, 'registry_failed'],
  [REGISTRY_UNREACHABLE, 'registry_unreachable'],
];

/**
 * Failures of a push. A missing manifest comes first: the registry was pruned or has lost it. Its
 * message can end with "… is denied", which REGISTRY_REFUSED would match.
 */
export const PUSH_FAILURES: readonly FailureRow[] = [
  ...MACHINE_FAILURES,
  [/manifest unknown|manifest for .* not found/i, 'image_pull_failed'],
  ...REGISTRY_FAILURES,
];

export const PULL_FAILURES: readonly FailureRow[] = [
  ...MACHINE_FAILURES,
  [/\bnot found\b/i, 'image_pull_failed'],
  ...PUSH_FAILURES,
];

export function classify(
  table: readonly FailureRow[],
  text: string,
  otherwise: FailureCode,
): FailureCode {
  return table.find(([pattern]) => pattern.test(text))?.[1] ?? otherwise;
}

/** Joins the last non-empty lines of a tool’s output into one line. */
export function outputTail(text: string, lines = 3): string {
  return text
    .split('\n')
    .map((l) => l.trim())
    .filter((l) => l !== '')
    .slice(-lines)
    .join(' · ')
    .slice(0, 1500);
}

/**
 * Returns the error for the task’s report. An unexpected error becomes `task_failed` with its own
 * message, or `disk_full`.
 */
export function taskErrorOf(error: unknown): TaskError {
  if (error instanceof TaskFailure) return { code: error.code, message: reportText(error.message) };
  if (error instanceof ExecError) {
    const output =
      error.result === null ? error.message : `${error.result.stderr}\n${error.result.stdout}`;
    const code = classify(MACHINE_FAILURES, output, 'task_failed');
    return { code, message: reportText(`${FAILURES[code]}: ${error.message}`) };
  }
  const code = ['ENOSPC', 'EDQUOT'].includes(
    (error as NodeJS.ErrnoException | undefined)?.code ?? '',
  )
    ? 'disk_full'
    : 'task_failed';
  return {
    code,
    message: reportText(`${FAILURES[code]}: ${messageOf(error)}`),
  };
}

/** Removes terminal control characters, and cuts the text to the maximum length in a report. */
const reportText = (message: string): string =>
  message
    .split('\n')
    .map((line) => terminalText(line, { colours: false }))
    .join('\n')
    .slice(0, 4000)
    .toWellFormed();
