/** Pulls an image, and retries while the registry restarts. */
import { redactor } from '@berth/kit/exec-output';
import { classify, outputTail, PULL_FAILURES, TaskFailure } from '../failures.ts';
import { pause } from '../stopped.ts';
import type { PullOptions } from './docker.ts';
import { type EngineClient, EngineError } from './engine-client.ts';
import { partsOf } from './image-ref.ts';
import { createJsonLines } from './json-lines.ts';
import type { RegistryCredentials } from './registry-credentials.ts';

type Progress = {
  id?: string;
  status?: string;
  error?: string;
  errorDetail?: { message?: string };
  progressDetail?: { current?: number } | null;
};

/**
 * Pauses in ms between retries: garbage collection restarts the registry, also while a rollback or
 * a drain pulls.
 */
const PAUSES_MS = [1_000, 2_000, 5_000];
/** Traefik’s answer while the registry's container restarts. */
const NO_ROUTE = /404 page not found/;

export async function pullImage(
  engine: EngineClient,
  credentials: Pick<RegistryCredentials, 'headerFor' | 'secrets'>,
  ref: string,
  { signal, timeoutMs, onLine }: PullOptions,
): Promise<void> {
  const late = AbortSignal.timeout(timeoutMs);
  const either = AbortSignal.any([signal, late]);
  for (const pauseMs of [...PAUSES_MS, null]) {
    const failure = await attempt(engine, credentials, ref, { signal: either, onLine }).then(
      () => null,
      (error: unknown) => {
        signal.throwIfAborted();
        if (late.aborted) throw tooLate(timeoutMs);
        if (!(error instanceof EngineError)) throw error;
        return error;
      },
    );
    if (failure === null) return;
    const code = codeOf(failure, ref);
    if (pauseMs === null || !isAway(code, failure.reason))
      throw new TaskFailure(code, outputTail(failure.reason), { cause: failure });
    onLine(`the registry does not answer; next attempt in ${pauseMs / 1000} s`);
    await pause(pauseMs, signal);
  }
}

const tooLate = (timeoutMs: number): TaskFailure =>
  new TaskFailure(
    'image_pull_failed',
    `the pull did not end within ${Math.round(timeoutMs / 1000)} s (PULL_TIMEOUT)`,
  );
/** Remove the image's name first: it must not match a failure pattern. */
const codeOf = ({ reason }: EngineError, ref: string) =>
  classify(PULL_FAILURES, reason.replaceAll(ref, '(image)'), 'image_pull_failed');
const isAway = (code: string, reason: string): boolean =>
  code === 'registry_unreachable' || code === 'registry_failed' || NO_ROUTE.test(reason);

async function attempt(
  engine: EngineClient,
  credentials: Pick<RegistryCredentials, 'headerFor' | 'secrets'>,
  ref: string,
  { signal, onLine }: Pick<PullOptions, 'signal' | 'onLine'>,
): Promise<void> {
  let error: string | null = null;
  const lines = createJsonLines((progress: Progress) => {
    error ??= progress.errorDetail?.message ?? progress.error ?? null;
    const line = lineOf(progress);
    if (line !== null) onLine(line);
  });
  const { name, tag } = partsOf(ref);
  await engine.stream('POST /images/create', {
    query: { fromImage: name, tag },
    registryAuth: credentials.headerFor(ref),
    signal,
    timeoutMs: null,
    onChunk: lines.add,
  });
  lines.end();
  if (error === null) return;
  throw new EngineError('POST /images/create', 200, redactor(credentials.secrets())(error));
}

/** Leaves out progress bars: a deployment log is not a terminal. */
function lineOf({ id, status, progressDetail }: Progress): string | null {
  if (status === undefined || progressDetail?.current !== undefined) return null;
  return id === undefined ? status : `${id}: ${status}`;
}
