/**
 * Checks whether a folder of the shared storage can be a dataset. A child process with a deadline
 * does the check, so a hanging share does not block the API. A process that hangs in the kernel
 * cannot be killed. It keeps its place until it exits, so at most four such processes exist.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { FolderProblem, CheckFolder } from '../domain/data/folder-check.ts';

const CHILD = fileURLToPath(new URL('./child/check-folder-child.ts', import.meta.url));
const ANSWER_MS = 5_000;
const MOST = 4;

/** Starts a check, which writes its answer to stdout. */
type StartCheck = (basePath: string, nfsPath: string) => ChildProcess;
const startChild: StartCheck = (basePath, nfsPath) =>
  spawn(process.execPath, [CHILD, basePath, nfsPath], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: {},
  });

/** `basePath`: null without shared storage. */
export function createCheckFolder(
  basePath: string | null,
  answerMs = ANSWER_MS,
  start = startChild,
): CheckFolder {
  const places = createPlaces(answerMs);
  const busy =
    `${MOST} checks of the shared storage are running or hang, so no other check can start; try ` +
    'again later';
  const late = `the shared storage did not answer within ${answerMs / 1000} s`;
  return async (nfsPath) => {
    if (basePath === null)
      return {
        rule: 'no_share',
        message: 'there is no shared storage: DATASET_NFS_BASE_PATH is not set',
      };
    if (!(await places.take())) return { rule: 'unreachable', message: busy };
    const seen = await ask(() => start(basePath, nfsPath), answerMs, places);
    // The answer `null` means that the folder can be a dataset.
    return seen === undefined ? { rule: 'unreachable', message: late } : seen;
  };
}

/** A semaphore for checks. */
type Places = {
  /**
   * Resolves to false if no place becomes free in time, or at once if hanging checks hold all
   * places.
   */
  take(): Promise<boolean>;
  /** Marks a place whose check was killed but has not exited. */
  hangs(): void;
  /** Frees a place. `hung`: `hangs` was called for it. */
  free(hung: boolean): void;
};

function createPlaces(waitMs: number): Places {
  let taken = 0;
  let hanging = 0;
  const waiting = new Set<(got: boolean) => void>();
  const turn = (): Promise<boolean> =>
    new Promise((resolve) => {
      const end = (got: boolean): void => {
        clearTimeout(late);
        waiting.delete(end);
        resolve(got);
      };
      const late = setTimeout(end, waitMs, false);
      waiting.add(end);
    });
  return {
    async take() {
      if (hanging === MOST) return false;
      if (taken === MOST) return turn();
      taken += 1;
      return true;
    },
    hangs() {
      hanging += 1;
      if (hanging === MOST) for (const end of waiting) end(false);
    },
    free(hung) {
      if (hung) hanging -= 1;
      const [next] = waiting;
      if (next === undefined) taken -= 1;
      else next(true);
    },
  };
}

/** Runs a check. Resolves with undefined if there is no answer in time. */
function ask(
  start: () => ChildProcess,
  answerMs: number,
  places: Places,
): Promise<FolderProblem | undefined> {
  return new Promise((resolve, reject) => {
    const child = started(start, places);
    let answer = '';
    let hung = false;
    const late = setTimeout(() => {
      hung = true;
      places.hangs();
      child.kill('SIGKILL');
      child.unref();
      child.stdout?.destroy();
      resolve(undefined);
    }, answerMs);
    child.stdout?.setEncoding('utf8').on('data', (text: string) => (answer += text));
    child.once('error', (error) => {
      clearTimeout(late);
      // Free the place here: a child that did not start emits no exit event.
      if (child.pid === undefined) places.free(hung);
      reject(error);
    });
    child.once('exit', () => places.free(hung));
    child.once('close', (code, signal) => {
      clearTimeout(late);
      // Ignore the late answer: the request was already answered.
      if (hung) return;
      if (code === 0) resolve(JSON.parse(answer) as FolderProblem);
      else reject(new Error(`the check of the shared storage ended with ${signal ?? code}`));
    });
  });
}

function started(start: () => ChildProcess, places: Places): ChildProcess {
  try {
    return start();
  } catch (error) {
    places.free(false);
    throw error;
  }
}
