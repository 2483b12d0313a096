/**
 * Runs the registry's own garbage collection. A push meanwhile would lose layers, so the registry
 * is read-only while it collects:
 *
 *   marker ─▶ configuration read-only ─▶ restart ─▶ the registry refuses uploads ─▶ garbage-collect
 *          ─▶ configuration as before ─▶ restart ─▶ the registry takes uploads ─▶ marker removed
 *
 * Whatever ends it in between, `recover` makes the registry writable again: after each failure,
 * before each attempt, at each start. The restart at the end is also needed because a running
 * registry remembers blobs that the collection deleted.
 */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { exec } from '@berth/kit/exec';
import { failPoint } from '@berth/kit/fail-point';
import { pause } from '../stopped.ts';
import type { DockerCli } from '../engine/docker-cli.ts';
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
   * Lets the registry collect its garbage. `mayBeEmpty` says that nothing is known to be in the
   * registry. Throws TaskFailure registry_not_read_only, registry_collect_failed,
   * registry_stays_read_only.
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
  /** Container of the registry; undefined: it runs on this machine. */
  container: string | undefined;
  /** Command that restarts a registry on this machine. */
  restart: readonly string[];
  cli: DockerCli;
  env: NodeJS.ProcessEnv;
  /** How long a restart can take. */
  restartMs?: number;
};

const RESTART_MS = 60_000;
const COLLECT_MS = 2 * 3_600_000;
const NAMES = ['docker-registry', 'registry'];
/** garbage-collect fails with it until the first push made both folders. */
const EMPTY = /Path not found: \S*\/docker\/registry\/v2\/(repositories|blobs)\s*$/;

export function createCollector({
  file,
  api,
  container,
  restart,
  cli,
  env,
  restartMs = RESTART_MS,
}: CollectorDeps): Collector {
  async function restarted(
    wanted: RegistryMode,
    code: 'registry_not_read_only' | 'registry_stays_read_only',
    signal: AbortSignal,
  ): Promise<void> {
    const command = container === undefined ? restart : ['docker', 'restart', container];
    const result =
      container === undefined
        ? await exec(command, { env, signal, timeoutMs: restartMs })
        : await cli.run(['restart', container], { signal, timeoutMs: restartMs });
    if (result.code !== 0)
      throw new TaskFailure(code, `${command.join(' ')}: ${outputTail(result.stderr)}`);
    const until = performance.now() + restartMs;
    for (let mode = await api.mode(signal); mode !== wanted; mode = await api.mode(signal)) {
      if (performance.now() > until)
        throw new TaskFailure(
          code,
          `${Math.round(restartMs / 1000)} s after a restart (${command.join(' ')}) it is ` +
            `${mode}; it must read ${file.path}`,
        );
      await pause(200, signal);
    }
  }

  /** Makes the registry writable. After a collection, blobs that it remembers can be gone. */
  async function undo(collected: boolean, signal: AbortSignal): Promise<void> {
    if (!(await file.isMarked())) return;
    await file.setWritable();
    await failPoint('clean.restored');
    // A registry that could not be restarted at the beginning has never been read-only.
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
    // Without --delete-untagged: a later build of the same commit takes over the tag, and a release
    // needs the image without it.
    const args = ['garbage-collect', file.path];
    const options = {
      signal,
      timeoutMs: COLLECT_MS,
      onLine,
      dieWithParent: true,
      maxOutput: 65_536,
    };
    const result =
      container === undefined
        ? await exec([await programOf(env), ...args], { ...options, env })
        : await cli.run(['exec', container, 'registry', ...args], options);
    signal.throwIfAborted();
    if (result.ended === null && result.code !== 0 && mayBeEmpty && EMPTY.test(result.stderr))
      return 0;
    if (result.code !== 0 || result.ended !== null)
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
        // The task might have been taken away, but the registry must take images again. The first
        // error is the reason.
        await undo(collected, AbortSignal.timeout(2 * restartMs)).catch((failed: unknown) => {
          throw failed instanceof TaskFailure ? failed : error;
        });
        throw error;
      }
    },
  };
}

/** Returns the path of the registry's program. Debian names it docker-registry. */
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

/** Bytes of all blobs; null if the folder is not on this machine or not readable. */
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
