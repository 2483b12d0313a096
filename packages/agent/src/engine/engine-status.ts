/**
 * Tracks the state and version of the container engine: `engine` and `arch` of a registration
 * (wire/node.ts).
 */
import { messageOf } from '@berth/kit/message-of';
import type { NodeEngine } from '@berth/wire/node';
import type { Docker } from './docker.ts';

export type EngineStatus = {
  /**
   * Call this when the engine has answered: asks for its version if that is unknown or older than
   * 10 min.
   */
  answered(signal: AbortSignal): Promise<void>;
  failed(error: unknown): void;
  /**
   * Asks for the version. A failure is recorded as the state of the engine. Rejects only with the
   * signal’s reason.
   */
  ask(signal: AbortSignal): Promise<void>;
  /** Returns the last state; null before the first answer or failure. */
  now(): NodeEngine | null;
  /**
   * Returns Go's name of the engine's architecture, or of this machine's while the engine's is
   * unknown.
   */
  arch(): string;
};

const ASK_MS = 5_000;
/** The version expires after 10 min, because the engine can be upgraded while the agent runs. */
const FRESH_MS = 10 * 60_000;
const MAX_ERROR = 300;

/** Architectures whose names differ between Node.js and Go. */
const GO_NAMES: Readonly<Record<string, string>> = {
  x64: 'amd64',
  ia32: '386',
  ppc64: 'ppc64le',
  mipsel: 'mipsle',
};

export function createEngineStatus(
  docker: Pick<Docker, 'version'>,
  arch: string = process.arch,
): EngineStatus {
  let state: NodeEngine | null = null;
  let lastAnswer: { version: string; arch: string } | null = null;
  let answeredAt = Number.NEGATIVE_INFINITY;

  function failed(error: unknown): void {
    const text = messageOf(error);
    answeredAt = Number.NEGATIVE_INFINITY;
    state = { ok: false, version: lastAnswer?.version ?? null, error: text.slice(0, MAX_ERROR) };
  }
  async function ask(signal: AbortSignal): Promise<void> {
    try {
      lastAnswer = await docker.version(AbortSignal.any([signal, AbortSignal.timeout(ASK_MS)]));
      answeredAt = performance.now();
      state = { ok: true, version: lastAnswer.version, error: null };
    } catch (error) {
      signal.throwIfAborted();
      failed(
        isTimeout(error) ? new Error(`the engine did not answer within ${ASK_MS / 1000} s`) : error,
      );
    }
  }

  return {
    ask,
    failed,
    async answered(signal) {
      if (state?.ok !== true || performance.now() - answeredAt > FRESH_MS) await ask(signal);
    },
    now: () => state,
    arch: () => lastAnswer?.arch ?? GO_NAMES[arch] ?? arch,
  };
}

const isTimeout = (error: unknown): boolean =>
  error instanceof Error && error.name === 'TimeoutError';
