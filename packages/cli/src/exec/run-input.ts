/**
 * Sends standard input to a run. The command starts when the session is there, so nothing is lost
 * before. A session that is lost later ends the input of the command, and not the run.
 */
import { backoff } from '@berth/kit/backoff';
import { messageOf } from '@berth/kit/message-of';
import type { Cli } from '../cli.ts';
import { connect, type Connection } from './connection.ts';

export type RunInput = {
  /** Connects, once the run is `running`. Later calls do nothing. */
  begin(): void;
  /** Stops sending. Returns why the input was cut off, or null. */
  end(): string | null;
};

const MAX_TRIES = 4;
const RETRY_MS = { min: 500, max: 4_000 };

export function createRunInput(cli: Cli, runId: string): RunInput {
  const state: State = { cli, runId, isOver: false, problem: null, stopReading: null, open: null };
  let hasBegun = false;
  return {
    begin() {
      if (hasBegun) return;
      hasBegun = true;
      void send(state);
    },
    end() {
      state.isOver = true;
      state.stopReading?.();
      state.open?.close();
      return state.problem;
    },
  };
}

type State = {
  cli: Cli;
  runId: string;
  /** The run has ended, so the end of the session is no problem. */
  isOver: boolean;
  problem: string | null;
  stopReading: (() => void) | null;
  open: Connection | null;
};

async function send(state: State): Promise<void> {
  const { cli } = state;
  for (let tries = 0; ; tries += 1) {
    const problem = await sendInput(state).catch(messageOf);
    if (problem === null || state.isOver) return;
    // Bytes that were read cannot be read again.
    if (state.stopReading !== null || tries + 1 >= MAX_TRIES) {
      state.problem = problem;
      return cli.say(`the standard input was cut off: ${problem}`);
    }
    await cli.io.sleep(backoff(tries, RETRY_MS), cli.io.interrupted).catch(() => undefined);
    if (state.isOver) return;
  }
}

/** Returns why the session ended too early; null if the input was sent or the command has ended. */
async function sendInput(state: State): Promise<string | null> {
  const { cli, runId } = state;
  const ticket = await cli.client().call('runInput', { params: { id: runId } });
  const ready = Promise.withResolvers<void>();
  const connection = await connect(cli.session().url, ticket, {
    onData: async () => undefined,
    onReady: () => ready.resolve(),
  });
  state.open = connection;
  if (state.isOver) connection.close();
  const ended = connection.ended.then((end) => (end.type === 'error' ? end.message : null));
  // The run can be over before somebody waits for it.
  ended.catch(() => undefined);
  const early = await Promise.race([ready.promise.then(() => 'ready' as const), ended]);
  if (early !== 'ready' || state.isOver) return early === 'ready' ? null : early;
  state.stopReading = cli.io.pipes.read(
    (bytes) => connection.send(bytes),
    () => connection.tell({ type: 'eof' }),
  );
  const problem = await ended;
  state.stopReading();
  return problem;
}
