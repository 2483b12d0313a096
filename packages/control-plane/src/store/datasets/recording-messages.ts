/** Messages between recording.ts and its thread (recording-thread.ts). */
import type { MessagePort } from 'node:worker_threads';
import type { Recording } from './record-version.ts';

/** To the thread: a recording, with a port of its own, or the request to end. */
export type ToThread = (Recording & { port: MessagePort }) | 'close';
/**
 * On the port, to the recording: the object that it requested, or why there is none; or the request
 * to stop.
 */
export type ToRecording =
  | { kind: 'object'; text: string }
  | { kind: 'no object'; problem: string }
  | { kind: 'stop' };
/** On the port, from the recording. */
export type FromRecording =
  | { kind: 'wanted'; digest: string }
  | { kind: 'ended'; held: boolean }
  | { kind: 'failed'; problem: string };
