/** Whether a folder of the shared storage can be a dataset. Looked at by another process with a deadline: a share that hangs takes that one with it, not the API. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { LookAtFolder } from '../domain/folder-look.ts';
import type { LookAnswer } from './look-child.ts';

const CHILD = fileURLToPath(new URL('./look-child.ts', import.meta.url));
const ANSWER_MS = 5_000;

/** `basePath`: null where there is no shared storage. */
export function createLook(basePath: string | null, answerMs = ANSWER_MS): LookAtFolder {
  return async (nfsPath) => {
    if (basePath === null) return { rule: 'no_share', message: 'there is no shared storage here: DATASET_NFS_BASE_PATH is not set' };
    const seen = await ask(basePath, nfsPath, answerMs);
    // null is an answer: nothing is wrong with it.
    if (seen !== undefined) return seen;
    return { rule: 'unreachable', message: `the shared storage did not answer within ${answerMs / 1000} s` };
  };
}

/** undefined: no answer in time. A process that hangs in the kernel cannot be killed; it is left behind and nobody waits for it. */
function ask(basePath: string, nfsPath: string, answerMs: number): Promise<LookAnswer | undefined> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [CHILD, basePath, nfsPath], { stdio: ['ignore', 'pipe', 'inherit'], env: {} });
    let answer = '';
    const late = setTimeout(() => {
      child.kill('SIGKILL');
      child.unref();
      child.stdout.destroy();
      resolve(undefined);
    }, answerMs);
    child.stdout.setEncoding('utf8').on('data', (text: string) => (answer += text));
    child.on('error', (error) => {
      clearTimeout(late);
      reject(error);
    });
    child.on('close', (code, signal) => {
      clearTimeout(late);
      if (code === 0) resolve(JSON.parse(answer) as LookAnswer);
      else reject(new Error(`the look at the shared storage ended with ${signal ?? code}`));
    });
  });
}
