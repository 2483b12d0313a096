/** WebSockets of exec sessions, for tests that play the client and the agent. */
import { EXEC_PROTOCOL, TICKET_PROTOCOL } from '@berth/wire/exec';
import { type RawData, WebSocket } from 'ws';
import { AGENT_SECRET } from './harness.ts';

const sockets: WebSocket[] = [];

export type Socket = {
  socket: WebSocket;
  /** Text messages. */
  texts: Record<string, unknown>[];
  data: [channel: number, text: string][];
  closed: Promise<void>;
};
export type Refusal = { status: number; code: string };

function listenTo(socket: WebSocket): Socket {
  const seen: Socket = {
    socket,
    texts: [],
    data: [],
    closed: new Promise((resolve) => socket.once('close', () => resolve())),
  };
  socket.on('message', (data: RawData, isBinary) => {
    const bytes = data as Buffer;
    if (isBinary) seen.data.push([bytes[0] ?? -1, bytes.subarray(1).toString()]);
    else seen.texts.push(JSON.parse(bytes.toString()) as Record<string, unknown>);
  });
  return seen;
}

export function open(
  base: string,
  path: string,
  protocols: string[],
  headers: Record<string, string> = {},
): Promise<Socket | Refusal> {
  return new Promise((resolve) => {
    const socket = new WebSocket(new URL(path, base.replace('http', 'ws')), protocols, { headers });
    sockets.push(socket);
    const seen = listenTo(socket);
    socket.on('error', () => undefined);
    socket.on('open', () => resolve(seen));
    socket.on('unexpected-response', (_, response) => {
      let text = '';
      response.on('data', (part: Buffer) => (text += part.toString()));
      response.on('end', () => {
        const { code } = JSON.parse(text) as { code: string };
        resolve({ status: response.statusCode ?? 0, code });
      });
    });
  });
}
/** Opens the client's end with its ticket. */
export const openClient = (
  base: string,
  { ticket, url }: Record<string, unknown>,
  headers: Record<string, string> = {},
): Promise<Socket | Refusal> =>
  open(
    base,
    new URL(String(url)).pathname,
    [EXEC_PROTOCOL, `${TICKET_PROTOCOL}${String(ticket)}`],
    headers,
  );
export const openAgent = (base: string, id: string): Promise<Socket | Refusal> =>
  open(base, `/api/agent/exec/${id}`, [EXEC_PROTOCOL], { 'x-agent-secret': AGENT_SECRET });
export const idOf = ({ url }: Record<string, unknown>): string =>
  String(url).split('/').at(-1) ?? '';
/** Ends all sockets of the test. */
export const closeSockets = (): void => {
  for (const socket of sockets.splice(0)) socket.terminate();
};
export const until = async (
  isTrue: () => boolean | Promise<boolean>,
  what: string,
): Promise<void> => {
  const late = Date.now() + 10_000;
  while (!(await isTrue())) {
    if (Date.now() > late) throw new Error(`not within 10 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};
