/** Messages between recording.ts and its thread (recording-thread.ts). */
import type { MessagePort } from 'node:worker_threads';
import type { Recording } from './record-version.ts';

/** Message to the thread: a recording with its own port, or the request to close. */
export type ToThread = (Recording & { port: MessagePort }) | 'close';
/**
 * Message to a recording, on its port: the requested object, the reason why it cannot be read, or
 * the request to stop.
 */
export type ToRecording =
  | { kind: 'object'; text: string }
  | { kind: 'no object'; problem: string }
  | { kind: 'stop' };
/** Message from a recording, on its port. */
export type FromRecording =
  | { kind: 'wanted'; digest: string }
  | { kind: 'ended'; held: boolean }
  | { kind: 'failed'; problem: string };
