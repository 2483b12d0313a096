/** The order of messages of a session: the end of the input comes after all of its bytes. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { EXEC_WINDOW } from '@berth/wire/exec';
import { expect, onTestFinished, test } from 'vitest';
import { WebSocketServer } from 'ws';
import { connect } from '../src/exec/connection.ts';

test('an end that comes while bytes wait for the agent is sent after them', async () => {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  onTestFinished(() => server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const atEnd = Promise.withResolvers<number>();
  server.on('connection', (socket) => {
    let bytes = 0;
    socket.on('message', (data, isBinary) => {
      if (!isBinary) return atEnd.resolve(bytes);
      bytes += (data as Buffer).length - 1;
      if (bytes === EXEC_WINDOW) socket.send(JSON.stringify({ type: 'taken', bytes }));
    });
  });
  const base = `http://127.0.0.1:${port}`;
  const ticket = { ticket: 'one', url: `${base}/api/exec/one` };
  const connection = await connect(base, ticket, { onData: async () => undefined });
  onTestFinished(() => connection.close());
  void connection.send(Buffer.alloc(EXEC_WINDOW + 10));
  connection.tell({ type: 'eof' });
  expect(await atEnd.promise).toBe(EXEC_WINDOW + 10);
});
