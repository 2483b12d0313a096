/** Opens the WebSocket of a ticket, and speaks the protocol of wire/exec.ts. */
import type { IncomingMessage } from 'node:http';
import {
  EXEC_CHANNELS,
  EXEC_CHUNK,
  EXEC_PROTOCOL,
  EXEC_WINDOW,
  type ClientMessage,
  type EndMessage,
  type ExecTicket,
  execFrame,
  execMessage,
  TICKET_PROTOCOL,
} from '@berth/wire/exec';
import { UnreachableError } from '@berth/wire/client';
import type { WebSocket } from 'ws';
import { lookup, readText } from '../http.ts';
import { CliError, EXIT, refused } from '../problem.ts';

export type Receiver = {
  /** Takes output in its order. */
  onData(channel: number, bytes: Uint8Array): Promise<void>;
  onReady?(): void;
  /** The other side has sent its last byte. */
  onEof?(): void;
};
export type Connection = {
  /** Sends the bytes after those of earlier calls. Resolves when more data may be sent. */
  send(bytes: Uint8Array): Promise<void>;
  /** Sends `eof` after all bytes, and other messages at once. */
  tell(message: ClientMessage): void;
  /** Resolves after all data has been taken. Rejects with CliError if the connection broke. */
  ended: Promise<EndMessage>;
  close(): void;
};

const HANDSHAKE_MS = 30_000;
const PAUSE_AT = 1_048_576;

/** Throws CliError if the control plane refuses the ticket. */
export async function connect(
  base: string,
  { ticket, url }: ExecTicket,
  receiver: Receiver,
): Promise<Connection> {
  // The address of this context: PUBLIC_URL may lead elsewhere, as in a tunnel.
  const address = new URL(new URL(url).pathname, base);
  address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
  const socket = await openSocket(address, ticket);
  return speak(socket, receiver);
}

async function openSocket(address: URL, ticket: string): Promise<WebSocket> {
  // Loaded here, because no other command needs it.
  const { WebSocket: Socket } = await import('ws');
  return new Promise((resolve, reject) => {
    const socket = new Socket(address, [EXEC_PROTOCOL, `${TICKET_PROTOCOL}${ticket}`], {
      handshakeTimeout: HANDSHAKE_MS,
      perMessageDeflate: false,
      lookup,
    });
    socket.once('error', (error) => reject(new UnreachableError(error.message, { cause: error })));
    socket.once('unexpected-response', (_, response) => {
      void refusalOf(response).then(reject, reject);
    });
    socket.once('open', () => {
      socket.pause();
      resolve(socket);
    });
  });
}

async function refusalOf(response: IncomingMessage): Promise<CliError> {
  const text = await readText(response).catch(() => '');
  try {
    const { code, detail, title } = JSON.parse(text) as Record<string, string>;
    return refused(code ?? 'refused', `${title ?? 'refused'}: ${detail ?? ''}`);
  } catch {
    return new CliError(
      EXIT.unreachable,
      'no_websocket',
      `the address answered ${response.statusCode ?? 0} instead of opening a WebSocket`,
      { next: 'check that the proxy in between passes on WebSockets' },
    );
  }
}

function speak(socket: WebSocket, receiver: Receiver): Connection {
  let taken: Promise<unknown> = Promise.resolve();
  let waitingBytes = 0;
  let end: EndMessage | null = null;
  /** Bytes that the agent has not confirmed. */
  let unconfirmed = 0;
  let onTaken = (): void => undefined;

  function take(channel: number, bytes: Uint8Array): void {
    waitingBytes += bytes.length;
    if (waitingBytes >= PAUSE_AT) socket.pause();
    taken = taken
      .then(() => receiver.onData(channel, bytes))
      .then(() => {
        waitingBytes -= bytes.length;
        if (socket.isPaused && waitingBytes < PAUSE_AT) socket.resume();
      });
  }
  const ended = new Promise<EndMessage>((resolve, reject) => {
    socket.on('message', (data, isBinary) => {
      const bytes = data as Buffer;
      if (isBinary) return take(bytes[0] ?? EXEC_CHANNELS.stdout, bytes.subarray(1));
      const message = execMessage(bytes.toString());
      if (message?.type === 'ready') receiver.onReady?.();
      if (message?.type === 'taken') {
        unconfirmed -= Number(message['bytes']);
        onTaken();
      }
      if (message?.type === 'eof') taken = taken.then(() => receiver.onEof?.());
      if (message?.type === 'exit' || message?.type === 'error')
        end = message as unknown as EndMessage;
    });
    socket.on('error', () => undefined);
    socket.on('close', () => {
      onTaken();
      taken.then(
        () =>
          end === null
            ? reject(
                new CliError(
                  EXIT.unreachable,
                  'connection_lost',
                  'the connection to Berth ended, which ends the session; nothing is resumed',
                ),
              )
            : resolve(end),
        reject,
      );
    });
  });
  // The caller may wait for it only later.
  ended.catch(() => undefined);
  socket.resume();
  async function sendParts(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length; at += EXEC_CHUNK) {
      const part = bytes.subarray(at, at + EXEC_CHUNK);
      while (unconfirmed + part.length > EXEC_WINDOW && socket.readyState === socket.OPEN)
        await new Promise<void>((resolve) => (onTaken = resolve));
      if (socket.readyState !== socket.OPEN) return;
      unconfirmed += part.length;
      socket.send(execFrame(EXEC_CHANNELS.stdin, part));
    }
  }
  /** The bytes of all calls of `send`, in their order. */
  let sent: Promise<void> = Promise.resolve();
  const post = (message: ClientMessage): void => {
    if (socket.readyState === socket.OPEN) socket.send(JSON.stringify(message));
  };
  return {
    ended,
    send: (bytes) => (sent = sent.then(() => sendParts(bytes))),
    tell(message) {
      // A stream can end while its last bytes wait for the agent.
      if (message.type === 'eof') void sent.then(() => post(message));
      else post(message);
    },
    close: () => socket.close(1000),
  };
}
