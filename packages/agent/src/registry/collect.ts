/**
 * Runs the registry's own garbage collection. A push during the collection would lose layers, so
 * the registry is read-only meanwhile:
 *
 *   marker ─▶ configuration read-only ─▶ restart ─▶ the registry refuses uploads ─▶ garbage-collect
 *          ─▶ configuration as before ─▶ restart ─▶ the registry accepts uploads ─▶ marker removed
 *
 * If any step is interrupted, `recover` makes the registry writable again: after each failure,
 * before each attempt, and at each start. The second restart is also needed because a running
 * registry still remembers blobs that the collection deleted.
 */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { exec } from '@berth/kit/exec';
import { failPoint } from '@berth/kit/fail-point';
import { pause } from '../stopped.ts';
import type { Docker } from '../engine/docker.ts';
import { reasonOf as engineReason } from '../engine/engine-errors.ts';
import { outputTail, TaskFailure } from '../failures.ts';
import type { RegistryApi, RegistryMode } from './api.ts';
import type { RegistryConfigFile } from './config-file.ts';

export type Collected = {
  blobs: number | null;
  bytesBefore: number | null;
  bytesAfter: number | null;
};
export type Collector = {
  /** Makes the registry writable if an agent process left it read-only. */
  recover(signal: AbortSignal): Promise<void>;
  /**
   * Runs the registry's garbage collection. `mayBeEmpty`: the registry might contain no image.
   * Throws TaskFailure registry_not_read_only, registry_collect_failed, registry_stays_read_only.
   */
  collect(
    onLine: (line: string) => void,
    mayBeEmpty: boolean,
    signal: AbortSignal,
  ): Promise<Collected>;
};
export type CollectorDeps = {
  file: RegistryConfigFile;
  api: Pick<RegistryApi, 'mode'>;
  /** Container of the registry; undefined if it runs as a program on this machine. */
  container: string | undefined;
  /** Command that restarts a registry on this machine. */
  restart: readonly string[];
  docker: Pick<Docker, 'execute' | 'restart'>;
  env: NodeJS.ProcessEnv;
  /** Maximum duration of a restart in ms. */
  restartMs?: number;
};

const RESTART_MS = 60_000;
const COLLECT_MS = 2 * 3_600_000;
const NAMES = ['docker-registry', 'registry'];
/** Matches the error of garbage-collect before the first push, which creates both folders. */
const EMPTY = /Path not found: \S*\/docker\/registry\/v2\/(repositories|blobs)\s*$/;

export function createCollector({
  file,
  api,
  container,
  restart,
  docker,
  env,
  restartMs = RESTART_MS,
}: CollectorDeps): Collector {
  async function restarted(
    wanted: RegistryMode,
    code: 'registry_not_read_only' | 'registry_stays_read_only',
    signal: AbortSignal,
  ): Promise<void> {
    const command = container === undefined ? restart : ['docker', 'restart', container];
    const refusal =
      container === undefined
        ? await restartProgram(restart, { env, signal, timeoutMs: restartMs })
        : await restartContainer(docker, container, { signal, timeoutMs: restartMs });
    if (refusal !== null)
      throw new TaskFailure(code, `${command.join(' ')}: ${outputTail(refusal)}`);
    const until = performance.now() + restartMs;
    for (let mode = await api.mode(signal); mode !== wanted; mode = await api.mode(signal)) {
      if (performance.now() > until)
        throw new TaskFailure(
          code,
          `the registry is still ${mode} ${Math.round(restartMs / 1000)} s after a restart ` +
            `(${command.join(' ')}); make sure that it reads ${file.path}`,
        );
      await pause(200, signal);
    }
  }

  /**
   * Makes the registry writable. After a collection, restarts it in any case, because it still
   * remembers deleted blobs.
   */
  async function undo(collected: boolean, signal: AbortSignal): Promise<void> {
    if (!(await file.isMarked())) return;
    await file.setWritable();
    await failPoint('clean.restored');
    // If the first restart failed, the registry has never been read-only.
    if (collected || (await api.mode(signal)) !== 'writable')
      await restarted('writable', 'registry_stays_read_only', signal);
    await file.forget();
  }
  const recover = (signal: AbortSignal): Promise<void> => undo(true, signal);

  async function run(
    onLine: (line: string) => void,
    mayBeEmpty: boolean,
    signal: AbortSignal,
  ): Promise<number | null> {
    // Do not use --delete-untagged: a later build of the same commit takes over the tag, and a
    // release still needs the untagged image.
    const args = ['garbage-collect', file.path];
    const options = { signal, timeoutMs: COLLECT_MS, onLine };
    const result =
      container === undefined
        ? await runProgram([await programOf(env), ...args], { ...options, env })
        : await runInContainer(docker, container, ['registry', ...args], options);
    signal.throwIfAborted();
    if (result.code !== 0 && mayBeEmpty && EMPTY.test(result.stderr)) return 0;
    if (result.code !== 0)
      throw new TaskFailure('registry_collect_failed', outputTail(result.stderr));
    const eligible = /(\d+) blobs and \d+ manifests eligible for deletion/.exec(
      `${result.stdout}\n${result.stderr}`,
    )?.[1];
    return eligible === undefined ? null : Number(eligible);
  }

  return {
    recover,
    async collect(onLine, mayBeEmpty, signal) {
      const folder = await file.folder();
      const bytesBefore = await bytesOfBlobs(folder);
      let collected = false;
      try {
        await failPoint('clean.read-only.before');
        await file.setReadOnly();
        await failPoint('clean.read-only.written');
        await restarted('read-only', 'registry_not_read_only', signal);
        await failPoint('clean.collect.before');
        collected = true;
        const blobs = await run(onLine, mayBeEmpty, signal);
        await failPoint('clean.collect.after');
        await recover(signal);
        await failPoint('clean.writable');
        return { blobs, bytesBefore, bytesAfter: await bytesOfBlobs(folder) };
      } catch (error) {
        // Always make the registry writable again, even if the task was withdrawn. Throw the first
        // error, unless the undo throws its own TaskFailure.
        await undo(collected, AbortSignal.timeout(2 * restartMs)).catch((failed: unknown) => {
          throw failed instanceof TaskFailure ? failed : error;
        });
        throw error;
      }
    },
  };
}

type Ran = { code: number | null; stdout: string; stderr: string };
type RunOptions = { signal: AbortSignal; timeoutMs: number; onLine: (line: string) => void };

/** Returns the reason why the restart failed, or null. */
async function restartProgram(
  command: readonly string[],
  options: { env: NodeJS.ProcessEnv; signal: AbortSignal; timeoutMs: number },
): Promise<string | null> {
  const { code, stderr } = await exec(command, options);
  return code === 0 ? null : stderr;
}
async function restartContainer(
  docker: Pick<Docker, 'restart'>,
  container: string,
  options: { signal: AbortSignal; timeoutMs: number },
): Promise<string | null> {
  try {
    await docker.restart(container, options);
    return null;
  } catch (error) {
    options.signal.throwIfAborted();
    return engineReason(error);
  }
}

/** The exit code of a program that was killed is null. */
async function runProgram(
  argv: readonly string[],
  options: RunOptions & { env: NodeJS.ProcessEnv },
): Promise<Ran> {
  const result = await exec(argv, { ...options, dieWithParent: true, maxOutput: 65_536 });
  return { ...result, code: result.ended === null ? result.code : null };
}
async function runInContainer(
  docker: Pick<Docker, 'execute'>,
  container: string,
  command: readonly string[],
  options: RunOptions,
): Promise<Ran> {
  try {
    return await docker.execute(container, command, options);
  } catch (error) {
    options.signal.throwIfAborted();
    return { code: null, stdout: '', stderr: engineReason(error) };
  }
}

/** Returns the path of the registry's program, which Debian names docker-registry. */
async function programOf({ PATH = '' }: NodeJS.ProcessEnv): Promise<string> {
  for (const folder of [...PATH.split(':'), '/usr/bin', '/usr/local/bin'])
    for (const name of NAMES) {
      const path = join(folder, name);
      if (folder !== '' && (await stat(path).catch(() => null))?.isFile() === true) return path;
    }
  throw new TaskFailure(
    'registry_collect_failed',
    `no program ${NAMES.join(' or ')} on this machine; for a container set REGISTRY_CONTAINER`,
  );
}

/**
 * Returns the size of all blobs in bytes; null if the folder is not on this machine or not
 * readable.
 */
async function bytesOfBlobs(folder: string | null): Promise<number | null> {
  if (folder === null) return null;
  const root = join(folder, 'docker/registry/v2/blobs/sha256');
  try {
    let bytes = 0;
    for (const prefix of await readdir(root))
      for (const digest of await readdir(join(root, prefix)))
        bytes += (await stat(join(root, prefix, digest, 'data')).catch(() => null))?.size ?? 0;
    return bytes;
  } catch {
    return null;
  }
}
