/**
 * Standard input of runs. Brings together the two sides that come in any order: the session with the
 * person, and the container, which was created and has not started.
 *
 *   expect ──▶ the person is there ──▶ attached ──▶ (the caller starts the container)
 *
 * The engine closes the command's standard input when the connection to it ends (StdinOnce). So a
 * lost session, and the end of this process, end the input and not the command.
 */
import type { Duplex } from 'node:stream';
import { TaskFailure } from '../failures.ts';
import type { Docker } from './docker.ts';
import { type ExecProcess, pipeOf } from './exec-session.ts';

type AttachOptions = {
  signal: AbortSignal;
  /** The session was lost before the end of the input, after so many bytes. */
  onCut: (bytes: number) => void;
};
export type ExpectedInput = {
  /**
   * Waits for the person, and connects the session with the container. Rejects with the signal's
   * reason, or with TaskFailure run_input_missing.
   */
  attach(container: string, options: AttachOptions): Promise<void>;
  close(): void;
};
export type RunInputs = {
  /** Accepts the session of a run, until `close`. */
  expect(runId: string): ExpectedInput;
  /**
   * Returns the standard input of a run when its container is attached. Rejects with a sentence for
   * the person, or when the signal aborts because the person has left.
   */
  open(runId: string, signal: AbortSignal): Promise<ExecProcess>;
};

/** Longest wait in ms for the person, after the container was created. */
const PERSON_MS = 60_000;
/** Longest wait in ms of a session for its run: the agent may just have restarted. */
const RUN_MS = 15_000;

type Place = {
  isTaken: boolean;
  /** Resolves when a person is there. */
  person: PromiseWithResolvers<void>;
  input: PromiseWithResolvers<ExecProcess>;
};

export function createRunInputs(
  docker: Pick<Docker, 'attachInput'>,
  { personMs = PERSON_MS, runMs = RUN_MS } = {},
): RunInputs {
  const places = new Map<string, Place>();
  const arrived = new Set<() => void>();

  async function placeOf(runId: string, signal: AbortSignal): Promise<Place> {
    const until = performance.now() + runMs;
    for (;;) {
      const place = places.get(runId);
      if (place !== undefined) return place;
      const remaining = until - performance.now();
      if (remaining <= 0) throw new Error('the run takes no standard input now');
      await new Promise<void>((resolve) => {
        const done = (): void => {
          clearTimeout(timer);
          arrived.delete(done);
          resolve();
        };
        const timer = setTimeout(done, remaining);
        arrived.add(done);
        signal.addEventListener('abort', done, { once: true });
      });
      signal.throwIfAborted();
    }
  }

  return {
    expect(runId) {
      const place: Place = {
        isTaken: false,
        person: Promise.withResolvers(),
        input: Promise.withResolvers(),
      };
      place.input.promise.catch(() => undefined);
      places.set(runId, place);
      for (const wake of arrived) wake();
      return {
        attach: (container, options) => attach(docker, place, container, options, personMs),
        close() {
          places.delete(runId);
          place.input.reject(new Error('the run ended before it took its standard input'));
        },
      };
    },
    async open(runId, signal) {
      const place = await placeOf(runId, signal);
      signal.throwIfAborted();
      if (place.isTaken) throw new Error('another connection sends the input of this run');
      place.isTaken = true;
      place.person.resolve();
      return new Promise((resolve, reject) => {
        const onLeft = (): void => {
          place.isTaken = false;
          place.person = Promise.withResolvers();
          reject(signal.reason);
        };
        signal.addEventListener('abort', onLeft, { once: true });
        place.input.promise
          .finally(() => signal.removeEventListener('abort', onLeft))
          .then(resolve, reject);
      });
    },
  };
}

async function attach(
  docker: Pick<Docker, 'attachInput'>,
  place: Place,
  container: string,
  { signal, onCut }: AttachOptions,
  personMs: number,
): Promise<void> {
  const late = AbortSignal.timeout(personMs);
  const either = AbortSignal.any([signal, late]);
  const { promise: ended, reject } = Promise.withResolvers<never>();
  ended.catch(() => undefined);
  const onEnd = (): void =>
    reject(
      signal.aborted
        ? signal.reason
        : new TaskFailure('run_input_missing', `nobody sent it within ${personMs / 1000} s`),
    );
  either.addEventListener('abort', onEnd, { once: true });
  if (either.aborted) onEnd();
  let socket: Duplex | null = null;
  try {
    // The person can leave while the engine answers.
    while (socket === null || !place.isTaken) {
      await Promise.race([place.person.promise, ended]);
      socket ??= await docker.attachInput(container, signal);
    }
    place.input.resolve(inputOf(socket, onCut));
  } catch (error) {
    socket?.destroy();
    throw error;
  } finally {
    either.removeEventListener('abort', onEnd);
  }
}

function inputOf(socket: Duplex, onCut: (bytes: number) => void): ExecProcess {
  const { promise: ended, resolve } = Promise.withResolvers<number>();
  const pipe = pipeOf(socket, () => undefined);
  let bytes = 0;
  let hasEnd = false;
  // Also when the command has ended, or has closed its standard input.
  socket.once('close', () => resolve(0));
  return {
    ...pipe,
    write(data, done) {
      bytes += data.length;
      pipe.write(data, done);
    },
    eof() {
      hasEnd = true;
      socket.end(() => resolve(0));
    },
    resize: () => undefined,
    ended,
    async stop() {
      if (hasEnd) return;
      socket.end();
      onCut(bytes);
    },
  };
}
