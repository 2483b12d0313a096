/** Reads the disk use of the engine's images and build cache, and the engine's data folder. */
import type { DockerCli } from './docker-cli.ts';

export type EngineUse = { root: string | null; images: number | null; build_cache: number | null };

/** The engine adds up each layer, which takes minutes on a full disk. */
const COUNT_MS = 5 * 60_000;

export async function engineUse(cli: DockerCli, signal: AbortSignal): Promise<EngineUse> {
  const info = await cli.runOrThrow(['info', '--format', '{{.DockerRootDir}}'], { signal });
  const { stdout } = await cli.runOrThrow(['system', 'df', '--format', '{{.Type}}\t{{.Size}}'], { signal, timeoutMs: COUNT_MS });
  const sizes = new Map(stdout.split('\n').map((line) => line.split('\t') as [string, string | undefined]));
  const bytes = (type: string): number | null => bytesOf(sizes.get(type) ?? '');
  return { root: info.stdout.trim() || null, images: bytes('Images'), build_cache: bytes('Build Cache') };
}

const UNITS: Readonly<Record<string, number>> = { B: 1, KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, PB: 1e15 };

/** Parses a size as docker prints it, e.g. `1.234GB`, in bytes; null for any other text. */
export function bytesOf(text: string): number | null {
  const [, digits, unit] = /^([\d.]+)\s*([kKMGTP]?B)$/.exec(text.trim()) ?? [];
  const factor = UNITS[unit?.toUpperCase() ?? ''];
  return digits === undefined || factor === undefined ? null : Math.round(Number(digits) * factor);
}
