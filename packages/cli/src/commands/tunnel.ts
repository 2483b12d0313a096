/** `berth tunnel`: a local port that leads to a port of a project's container. */
import { once } from 'node:events';
import type { AddressInfo, Server, Socket } from 'node:net';
import { defined } from '@berth/kit/defined';
import type { ExecTicket } from '@berth/wire/exec';
import type { Project } from '@berth/wire/project';
import type { Cli } from '../cli.ts';
import { connect } from '../exec/connection.ts';
import { CliError, EXIT, failureOf, usage } from '../problem.ts';
import { argument, type Command } from './command.ts';

/** Time in ms for which a ticket may wait for its connection. It expires after 30 s. */
const FRESH_MS = 20_000;

export const TUNNEL_COMMANDS: readonly Command[] = [
  {
    name: 'tunnel',
    summary: 'Forward a local port to a port of a container of a project, until Ctrl-C',
    detail:
      'The local port listens on 127.0.0.1 only. Node (ALLOW_EXEC) and project (allow_exec) must ' +
      'allow it.',
    args: [
      { name: 'project', doc: 'name or id', required: true },
      { name: 'local-port', doc: 'port on this machine (default: a free one)' },
    ],
    options: [
      {
        flags: '--port <number>',
        doc: 'port in the container (default: container_port of the project)',
        parse: portOf,
      },
    ],
    routes: ['getProject', 'tunnelProject'],
    async run(cli, args, { port }) {
      const local = argument(args, 1) === '' ? 0 : portOf(argument(args, 1));
      const project = await cli.project(argument(args, 0));
      const remote = port as number | undefined;
      const tickets = ticketsFor(cli, project, remote);
      // Refusals come before the port opens.
      await tickets.prepare();
      const server = await listen(cli, local, (socket) => serve(cli, tickets, socket));
      const { port: opened } = server.address() as AddressInfo;
      const target = { port: remote ?? project.container_port, project: project.name };
      cli.printLine(
        { type: 'listening', host: '127.0.0.1', local_port: opened, ...target },
        () => `127.0.0.1:${opened} leads to port ${target.port} of ${project.name}; Ctrl-C ends it`,
      );
      const { interrupted } = cli.io;
      if (!interrupted.aborted) await once(interrupted, 'abort');
      server.close();
      throw new CliError(EXIT.interrupted, 'interrupted', 'interrupted', { shown: true });
    },
  },
];

function portOf(text: string): number {
  const port = Number(text);
  if (!Number.isInteger(port) || port < 1 || port > 65_535)
    throw usage(`“${text}” must be a port from 1 to 65535, such as 5432`);
  return port;
}

type Tickets = { prepare(): Promise<void>; next(): Promise<ExecTicket> };

/** Keeps the ticket of the first check for the first connection. */
function ticketsFor(cli: Cli, project: Project, port: number | undefined): Tickets {
  let kept: { ticket: ExecTicket; at: number } | null = null;
  const create = (): Promise<ExecTicket> =>
    cli.client().call('tunnelProject', { params: { id: project.id }, body: defined({ port }) });
  return {
    async prepare() {
      kept = { ticket: await create(), at: cli.io.monotonic() };
    },
    async next() {
      const first = kept;
      kept = null;
      return first !== null && cli.io.monotonic() - first.at < FRESH_MS ? first.ticket : create();
    },
  };
}

async function listen(cli: Cli, port: number, onSocket: (socket: Socket) => void): Promise<Server> {
  const { createServer } = await import('node:net');
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, onSocket);
  cli.io.interrupted.addEventListener('abort', () => server.close(), { once: true });
  server.listen(port, '127.0.0.1');
  try {
    await once(server, 'listening');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new CliError(
      EXIT.refused,
      'port_taken',
      `cannot listen on 127.0.0.1:${port}: ${code ?? 'unknown error'}`,
      { next: 'choose another local port, or leave it out', cause: error },
    );
  }
  return server;
}

/** Passes on one connection. A failure ends this connection only. */
function serve(cli: Cli, tickets: Tickets, socket: Socket): void {
  socket.on('error', () => undefined);
  const onInterrupt = (): void => void socket.destroy();
  cli.io.interrupted.addEventListener('abort', onInterrupt, { once: true });
  forward(cli, tickets, socket)
    .catch((error: unknown) => cli.say(failureOf(error).lines.join('; ')))
    .finally(() => {
      cli.io.interrupted.removeEventListener('abort', onInterrupt);
      socket.destroy();
    });
}

async function forward(cli: Cli, tickets: Tickets, socket: Socket): Promise<void> {
  const connection = await connect(cli.session().url, await tickets.next(), {
    onData: (_, bytes) =>
      new Promise((resolve) => {
        if (socket.destroyed) return resolve();
        socket.once('close', resolve);
        socket.write(bytes, () => {
          socket.off('close', resolve);
          resolve();
        });
      }),
    onEof: () => void socket.end(),
  });
  socket.on('data', (bytes: Buffer) => {
    socket.pause();
    void connection.send(bytes).then(() => socket.resume());
  });
  socket.once('end', () => connection.tell({ type: 'eof' }));
  socket.once('close', () => connection.close());
  socket.resume();
  const end = await connection.ended.catch((error: unknown) => {
    // This side has closed the connection.
    if (socket.destroyed) return null;
    throw error;
  });
  if (end?.type === 'error' && !socket.destroyed) cli.say(end.message);
  if (!socket.destroyed && !socket.writableEnded)
    await new Promise<void>((resolve) => socket.end(() => resolve()));
}
