/**
 * One exec session of this page: a WebSocket with the protocol of wire/exec.ts. The ticket goes into
 * the subprotocol, so no address has it.
 */
import {
  EXEC_CHANNELS,
  EXEC_CHUNK,
  EXEC_PROTOCOL,
  EXEC_WINDOW,
  type ExecTicket,
  execFrame,
  execMessage,
  TICKET_PROTOCOL,
} from '@berth/wire/exec';

export type Size = { rows: number; cols: number };
/** Why a session ended. `code`: the exit code of the command; null: it did not say one. */
export type SessionEnd = { code: number | null; why: string };
export type Receiver = {
  onReady(): void;
  /** `done`: the bytes have been shown. */
  onOutput(bytes: Uint8Array, done: () => void): void;
  onEnd(end: SessionEnd): void;
};
export type ExecSession = {
  send(bytes: Uint8Array): void;
  resize(size: Size): void;
  close(): void;
};

/** The part of WebSocket that a session uses. */
export type Socket = EventTarget &
  Pick<WebSocket, 'send' | 'close' | 'readyState'> & { binaryType: BinaryType };
type OpenSocket = (address: string, protocols: string[]) => Socket;

/**
 * Maximum number of bytes of output that wait to be shown. A browser cannot slow down a WebSocket,
 * so a command that prints more at once loses its session.
 */
export const MAX_WAITING = 16 * 1_048_576;
const OPEN = 1;

const LOST = 'The connection to Berth ended, which ends the session; nothing is resumed.';
const REFUSED =
  'The session did not begin: the ticket was refused, or a proxy in between passes on no WebSockets.';
const TOO_FAST =
  'The command prints faster than this page can show, so the session ended; use berth exec.';

export const codeText = (code: number): string => `The command ended with exit code ${code}.`;

/** Opens the WebSocket at the control plane from which this page came (`origin`). */
export function openSession(
  { ticket, url }: ExecTicket,
  origin: string,
  receiver: Receiver,
  open: OpenSocket = (address, protocols) => new WebSocket(address, protocols),
): ExecSession {
  const address = new URL(new URL(url).pathname, origin);
  address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
  const socket = open(address.href, [EXEC_PROTOCOL, `${TICKET_PROTOCOL}${ticket}`]);
  socket.binaryType = 'arraybuffer';
  const state = { isReady: false, waiting: 0, unconfirmed: 0, end: null as SessionEnd | null };
  const input: Uint8Array[] = [];

  const flush = (): void => {
    for (let next = input[0]; next !== undefined; next = input[0]) {
      if (socket.readyState !== OPEN || state.unconfirmed + next.length > EXEC_WINDOW) return;
      input.shift();
      state.unconfirmed += next.length;
      socket.send(execFrame(EXEC_CHANNELS.stdin, next) as Uint8Array<ArrayBuffer>);
    }
  };
  const take = (bytes: Uint8Array): void => {
    state.waiting += bytes.length;
    if (state.waiting > MAX_WAITING) {
      state.end ??= { code: null, why: TOO_FAST };
      return socket.close(1000);
    }
    receiver.onOutput(bytes, () => {
      state.waiting -= bytes.length;
    });
  };
  const tell = (text: string): void => {
    const message = execMessage(text);
    if (message?.type === 'ready') {
      state.isReady = true;
      receiver.onReady();
    } else if (message?.type === 'taken') {
      state.unconfirmed -= Number(message['bytes']);
      flush();
    } else if (message?.type === 'exit') {
      const code = Number(message['code']);
      state.end ??= { code, why: codeText(code) };
    } else if (message?.type === 'error')
      state.end ??= { code: null, why: String(message['message']) };
  };
  socket.addEventListener('message', (event) => {
    const { data } = event as MessageEvent<string | ArrayBuffer>;
    if (typeof data === 'string') tell(data);
    else take(new Uint8Array(data, 1));
  });
  socket.addEventListener('close', () =>
    receiver.onEnd(state.end ?? { code: null, why: state.isReady ? LOST : REFUSED }),
  );
  return {
    send(bytes) {
      for (let at = 0; at < bytes.length; at += EXEC_CHUNK)
        input.push(bytes.subarray(at, at + EXEC_CHUNK));
      flush();
    },
    resize({ rows, cols }) {
      if (socket.readyState === OPEN) socket.send(JSON.stringify({ type: 'resize', rows, cols }));
    },
    close() {
      state.end ??= { code: null, why: 'You ended the session.' };
      socket.close(1000);
    },
  };
}
