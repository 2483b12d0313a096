/** The context of one command: its session, project and output. */
import type { Client } from '@berth/wire/client';
import type { Project } from '@berth/wire/project';
import type { Io } from './io.ts';
import { chooseAddress } from './session/choose.ts';
import { openSession, type Session } from './session/session.ts';
import { selectProject } from './project/select.ts';
import { jsonLine, type Paint, paintWith, safePainted } from './output/text.ts';

export type GlobalOptions = { json?: boolean; context?: string; project?: string };

export type Cli = {
  io: Io;
  json: boolean;
  context: string | undefined;
  /** Returns the session. Throws CliError if nobody is signed in. */
  session(): Session;
  client(): Client;
  /** Finds the project. `named`: the argument of the command. */
  project(named?: string): Promise<Project>;
  /** Like `project`, but uses the given session. */
  projectOf(session: Session, named?: string): Promise<Project>;
  /** Prints the result of a command: one JSON object with --json, otherwise the text. */
  print(data: unknown, text: () => string): void;
  /** Prints one JSON object of a stream with --json, otherwise the text. */
  printLine(data: unknown, text: () => string): void;
  /** Prints a sentence on stderr, but not with --json. */
  say(text: string): void;
  /** Prints a sentence on stderr, even with --json, because a person must read it. */
  tell(text: string): void;
  paintOut: Paint;
  paintErr: Paint;
};

export function createCli(io: Io, options: GlobalOptions): Cli {
  let opened: Session | undefined;
  const session = (): Session => {
    if (opened === undefined) {
      const { url, token } = chooseAddress(io, options.context);
      opened = openSession(io, url, token);
    }
    return opened;
  };
  const json = options.json === true;
  const tell = (text: string): void => io.err(`${safePainted(text)}\n`);
  const put = (data: unknown, text: () => string): void => {
    // Remove control characters, because any text of the server can contain them.
    const shown = json ? jsonLine(data) : safePainted(text());
    if (shown !== '') io.out(`${shown}\n`);
  };
  return {
    io,
    json,
    context: options.context,
    session,
    client: () => session().client,
    project: async (named) =>
      (await selectProject(io, session(), named ?? options.project)).project,
    projectOf: async (other, named) => (await selectProject(io, other, named)).project,
    print: put,
    printLine: put,
    say: (text) => json || tell(text),
    tell,
    paintOut: paintWith(io.terminal.out && io.config.canDraw),
    paintErr: paintWith(io.terminal.err && io.config.canDraw),
  };
}
