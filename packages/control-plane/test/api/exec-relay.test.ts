/** The relay of an exec session whose agent does not read. The sockets are played by the test. */
import { EventEmitter } from 'node:events';
import { EXEC_CHANNELS, EXEC_WINDOW, type EndMessage, execFrame } from '@berth/wire/exec';
import { expect, test } from 'vitest';
import type { WebSocket } from 'ws';
import { createRelay } from '../../src/api/exec/relay.ts';

/** A socket that nobody reads: what is sent to it waits. */
class Unread extends EventEmitter {
  readonly OPEN = 1;
  readonly CLOSED = 3;
  readyState = 1;
  bufferedAmount = 0;
  isPaused = false;
  send(data: string | Uint8Array): void {
    this.bufferedAmount += data.length;
  }
  pause(): void {
    this.isPaused = true;
  }
  resume(): void {
    this.isPaused = false;
  }
  close(): void {
    this.readyState = this.CLOSED;
    queueMicrotask(() => this.emit('close'));
  }
}

test.each([
  ['sizes of the terminal', Buffer.from('{"type":"resize","rows":50,"cols":120}'), false],
  ['ends of input', Buffer.from('{"type":"eof"}'), false],
  ['messages without data', Buffer.from(execFrame(EXEC_CHANNELS.stdin, Buffer.of())), true],
])('a client that sends %s without end loses its session', (_, message, isBinary) => {
  const [client, agent] = [new Unread(), new Unread()];
  const ends: (EndMessage | null)[] = [];
  const relay = createRelay(client as unknown as WebSocket, { onEnd: (end) => ends.push(end) });
  relay.join(agent as unknown as WebSocket, { type: 'start' } as never);
  for (let bytes = 0; bytes < 20 * EXEC_WINDOW && ends.length === 0; bytes += message.length)
    client.emit('message', message, isBinary);
  expect(ends).toMatchObject([{ type: 'error', message: expect.stringContaining('too fast') }]);
  expect(agent.bufferedAmount).toBeLessThan(10 * EXEC_WINDOW);
});
