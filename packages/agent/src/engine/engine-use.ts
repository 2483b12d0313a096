/**
 * Reads the disk use of the engine's images and build cache, and the engine's data folder; prunes
 * the build cache.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { ExecResult } from '@berth/kit/exec';
import type { DockerCli, RunOptions } from './docker-cli.ts';

/** A size is null if the engine does not tell it. */
export type EngineUse = {
  root: string | null;
  images: number | null;
  build_cache: number | null;
  /** Bytes of build cache that neither a build nor an image uses. */
  build_cache_unused: number | null;
};
export type ImageSize = {
  /** Bytes of layers that no other image has. */
  unique: number;
  /** `repository:tag`, without images that have no tag. */
  tags: string[];
};

/** The engine adds up each layer, which takes minutes on a full disk. */
const COUNT_MS = 5 * 60_000;
const PRUNE_MS = 10 * 60_000;
const MAX_ANSWER = 64 * 1024 * 1024;
/**
 * An engine of version 20.10 refuses a second count at the same time, for example that of another
 * agent.
 */
const IS_COUNTING = /disk usage operation is already running/i;
const ASK_AGAIN_MS = 2_000;

async function systemDf(
  cli: Pick<DockerCli, 'runOrThrow'>,
  args: readonly string[],
  options: RunOptions,
): Promise<ExecResult> {
  const since = performance.now();
  for (;;) {
    try {
      return await cli.runOrThrow(['system', 'df', ...args], { ...options, timeoutMs: COUNT_MS });
    } catch (error) {
      const isRefused = error instanceof Error && IS_COUNTING.test(error.message);
      if (!isRefused || performance.now() - since > COUNT_MS) throw error;
    }
    await sleep(
      ASK_AGAIN_MS,
      undefined,
      options.signal === undefined ? {} : { signal: options.signal },
    );
  }
}

export async function engineUse(
  cli: Pick<DockerCli, 'runOrThrow'>,
  signal: AbortSignal,
): Promise<EngineUse> {
  const info = await cli.runOrThrow(['info', '--format', '{{.DockerRootDir}}'], { signal });
  const { stdout } = await systemDf(cli, ['--format', '{{.Type}}\t{{.Size}}\t{{.Reclaimable}}'], {
    signal,
  });
  const rows = new Map(
    stdout.split('\n').map((line) => [line.split('\t')[0], line.split('\t').slice(1)] as const),
  );
  const bytes = (type: string, column: 0 | 1): number | null =>
    bytesOf((rows.get(type)?.[column] ?? '').replace(/\s*\(.*\)$/, ''));
  return {
    root: info.stdout.trim() || null,
    images: bytes('Images', 0),
    build_cache: bytes('Build Cache', 0),
    build_cache_unused: bytes('Build Cache', 1),
  };
}

/**
 * Returns the sizes by image id. Throws if the engine does not tell them: an image must not count
 * as small because its size is unknown.
 */
export async function imageSizes(
  cli: Pick<DockerCli, 'runOrThrow'>,
  signal: AbortSignal,
): Promise<Map<string, ImageSize>> {
  const { stdout, stdoutCut } = await systemDf(cli, ['--verbose', '--format', '{{json .}}'], {
    signal,
    maxOutput: MAX_ANSWER,
  });
  if (stdoutCut) throw new Error(`the engine’s list of images exceeds ${MAX_ANSWER} characters`);
  const { Images: rows } = JSON.parse(stdout) as { Images?: RawSize[] | null };
  if (!Array.isArray(rows)) throw new Error('the engine lists no sizes of images');
  const sizes = new Map<string, ImageSize>();
  for (const { ID: id, UniqueSize, Repository, Tag } of rows) {
    const unique = bytesOf(UniqueSize);
    if (unique === null) throw new Error(`the engine does not tell the size of image ${id}`);
    const size = sizes.get(id) ?? { unique, tags: [] };
    if (Tag !== '<none>') size.tags.push(`${Repository}:${Tag}`);
    sizes.set(id, size);
  }
  return sizes;
}
/**
 * Returns imageSizes, which asks the engine only after images or their names changed: it adds up
 * each layer of each image for an answer.
 */
export function createImageSizes(
  cli: Pick<DockerCli, 'runOrThrow'>,
): (signal: AbortSignal) => Promise<ReadonlyMap<string, ImageSize>> {
  let known: { of: string; sizes: ReadonlyMap<string, ImageSize> } | null = null;
  return async (signal) => {
    const { stdout, stdoutCut } = await cli.runOrThrow(
      ['image', 'ls', '--no-trunc', '--format', '{{.ID}} {{.Repository}}:{{.Tag}}'],
      {
        signal,
        maxOutput: MAX_ANSWER,
      },
    );
    const of = stdout.split('\n').sort().join('\n');
    if (known?.of === of) return known.sizes;
    const sizes = await imageSizes(cli, signal);
    known = stdoutCut ? null : { of, sizes };
    return sizes;
  };
}
type RawSize = { ID: string; Repository: string; Tag: string; UniqueSize: string };

/**
 * Removes build cache, least recently used first, until about `keep` bytes are left. Records of
 * running builds stay. Returns false if it removed nothing. The engine also removes records that
 * share their bytes with an image, which frees nothing: then it can be repeated.
 */
export async function pruneBuildCache(
  cli: DockerCli,
  keep: number,
  signal: AbortSignal,
): Promise<boolean> {
  const { stdout } = await cli.runOrThrow(
    ['buildx', 'prune', '--force', '--all', '--keep-storage', String(Math.floor(keep))],
    {
      signal,
      timeoutMs: PRUNE_MS,
      maxOutput: MAX_ANSWER,
      dieWithParent: true,
    },
  );
  return (bytesOf(/^Total:\s*(.+)$/m.exec(stdout)?.[1] ?? '') ?? 0) > 0;
}

const UNITS: Readonly<Record<string, number>> = {
  B: 1,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
  PB: 1e15,
};

/** Parses a size as docker prints it, e.g. `1.234GB`, in bytes; null for any other text. */
export function bytesOf(text: string): number | null {
  const [, digits, unit] = /^([\d.]+)\s*([kKMGTP]?B)$/.exec(text.trim()) ?? [];
  const factor = UNITS[unit?.toUpperCase() ?? ''];
  return digits === undefined || factor === undefined ? null : Math.round(Number(digits) * factor);
}
