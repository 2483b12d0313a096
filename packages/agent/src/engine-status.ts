/** What the container engine says of itself: `engine` and `arch` of a register (wire/node.ts). */
import type { NodeEngine } from '@berth/wire/node';
import type { Docker } from './tools/docker.ts';

export type EngineStatus = {
  /** The engine answered a request of ours; its version is asked for when it is not known or old. */
  answered(signal: AbortSignal): Promise<void>;
  failed(error: unknown): void;
  /** Asks for the version; a failure is kept as the engine's state. Rejects only with the signal's reason. */
  ask(signal: AbortSignal): Promise<void>;
  /** Null before the first answer or failure. */
  now(): NodeEngine | null;
  /** Go's name; the agent's own machine's where the engine has not told its own. */
  arch(): string;
};

const ASK_MS = 5_000;
/** The engine may be upgraded while the agent runs. */
const FRESH_MS = 10 * 60_000;
const MOST_ERROR = 300;

/** Node's names of architectures whose names in Go differ. */
const GO_NAMES: Readonly<Record<string, string>> = { x64: 'amd64', ia32: '386', ppc64: 'ppc64le', mipsel: 'mipsle' };

export function createEngineStatus(docker: Pick<Docker, 'version'>, arch: string = process.arch): EngineStatus {
  let state: NodeEngine | null = null;
  let told: { version: string; arch: string } | null = null;
  let toldAt = Number.NEGATIVE_INFINITY;

  function failed(error: unknown): void {
    const text = error instanceof Error ? error.message : String(error);
    toldAt = Number.NEGATIVE_INFINITY;
    state = { ok: false, version: told?.version ?? null, error: text.slice(0, MOST_ERROR) };
  }
  async function ask(signal: AbortSignal): Promise<void> {
    try {
      told = await docker.version(AbortSignal.any([signal, AbortSignal.timeout(ASK_MS)]));
      toldAt = performance.now();
      state = { ok: true, version: told.version, error: null };
    } catch (error) {
      signal.throwIfAborted();
      failed(isTimeout(error) ? new Error(`the engine did not tell its version within ${ASK_MS / 1000} s`) : error);
    }
  }

  return {
    ask,
    failed,
    async answered(signal) {
      if (state?.ok !== true || performance.now() - toldAt > FRESH_MS) await ask(signal);
    },
    now: () => state,
    arch: () => told?.arch ?? GO_NAMES[arch] ?? arch,
  };
}

const isTimeout = (error: unknown): boolean => error instanceof Error && error.name === 'TimeoutError';
