/**
 * The way from one control plane to its database server, with its own port. It passes bytes on
 * until it must drop them, like a cable that is pulled for a moment, or shut for good: a killed
 * process sends nothing more, whatever its code still tries.
 */
import { createServer, connect, type AddressInfo, type Socket } from 'node:net';

/**
 * Whether the last message before the end still reaches the server; the answer never comes back.
 */
export type Moment = 'before' | 'after';
export type Gate = {
  port: number;
  /** Ends every connection now; new ones can be made. */
  drop(): void;
  /**
   * Shuts the gate at the n-th message from now, between two statements of a transaction or at its
   * commit.
   */
  shutAt(n: number, moment: Moment, shut: () => void): void;
  spare(): void;
  shut(): void;
  close(): Promise<void>;
};

export async function createGate(serverPort: number): Promise<Gate> {
  const ends = new Set<Socket>();
  let isShut = false;
  let death: { messages: number; moment: Moment; shut: () => void } | null = null;

  function drop(): void {
    for (const end of ends) end.destroy();
    ends.clear();
  }
  function shut(): void {
    isShut = true;
    death = null;
    drop();
  }

  const server = createServer((client) => {
    const upstream = isShut ? null : connect(serverPort, '127.0.0.1');
    for (const end of [client, upstream]) {
      if (end === null) continue;
      ends.add(end.setNoDelay(true));
      end.on('error', () => {});
      end.on('close', () => {
        ends.delete(end);
        (end === client ? upstream : client)?.destroy();
      });
    }
    client.on('data', (bytes) => {
      if (upstream === null || isShut) return void client.end(REFUSAL);
      if (death === null || --death.messages > 0) return void upstream.write(bytes);
      const { moment, shut: told } = death;
      // The server reads the message, and then the end of the connection.
      if (moment === 'after') {
        upstream.removeAllListeners('close').end(bytes);
        ends.delete(upstream);
      }
      shut();
      told();
    });
    upstream?.on('data', (bytes) => client.write(bytes));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));

  return {
    port: (server.address() as AddressInfo).port,
    drop,
    shutAt(messages, moment, told) {
      death = { messages, moment, shut: told };
    },
    spare() {
      death = null;
    },
    shut,
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      shut();
      await closed;
    },
  };
}

/** A server's refusal of a connection: unlike a lost connection, it is not tried again. */
const REFUSAL = ((): Buffer => {
  const fields = Buffer.from('SFATAL\0VFATAL\0C28000\0Mthis process was killed\0\0');
  const message = Buffer.alloc(5 + fields.length);
  message.write('E');
  message.writeInt32BE(4 + fields.length, 1);
  fields.copy(message, 5);
  return message;
})();
