/** Checks a berth.toml, and writes the settings of a project as one. Loaded when a command needs it. */
import { lstat, readFile } from 'node:fs/promises';
import path from 'node:path';
import {
  BERTH_TOML,
  berthToml,
  type ConfigProblem,
  parseBerthToml,
  problemText,
} from '@berth/wire/berth-toml';
import { PROJECT_DEFAULTS } from '@berth/wire/project';
import { MAX_CONFIG_FILE } from '@berth/wire/task';
import { CliError, EXIT, refused } from '../problem.ts';
import type { Cli } from '../cli.ts';

/** Throws CliError that names each mistake. `given`: the file or its folder. */
export async function checkConfig(cli: Cli, given: string | undefined): Promise<void> {
  const file = await fileAt(path.resolve(cli.io.cwd, given ?? '.'));
  const shown = path.relative(cli.io.cwd, file) || BERTH_TOML;
  const text = await readConfig(file, shown);
  if (text === null)
    return cli.print(
      { file: shown, exists: false, keys: [] },
      () => `There is no ${shown}: the settings of the project apply.`,
    );
  const parsed = parseBerthToml(text);
  if ('problems' in parsed) throw wrong(cli, shown, parsed.problems);
  const { keys } = parsed;
  cli.print({ file: shown, exists: true, keys }, () =>
    keys.length === 0
      ? `${shown} is right; it sets nothing.`
      : `${shown} is right; it sets ${keys.join(', ')}.`,
  );
}

/** Returns the path of the file in a folder, or the path itself. */
async function fileAt(given: string): Promise<string> {
  const entry = await lstat(given).catch(() => null);
  return entry?.isDirectory() === true ? path.join(given, BERTH_TOML) : given;
}

/** Reads the file as a builder does. Returns null if there is none. Throws CliError. */
async function readConfig(file: string, shown: string): Promise<string | null> {
  const entry = await lstat(file).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  });
  if (entry === null) return null;
  if (!entry.isFile()) throw refused('config_invalid', `${shown} must be a plain file, not a link`);
  if (entry.size > MAX_CONFIG_FILE)
    throw refused(
      'config_invalid',
      `${shown} must have at most ${MAX_CONFIG_FILE} bytes (64 KiB); it has ${entry.size}`,
    );
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(await readFile(file));
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw refused('config_invalid', `${shown} must be UTF-8 text`);
  }
}

/** In a terminal each problem has its own line. */
function wrong(cli: Cli, file: string, problems: readonly ConfigProblem[]): CliError {
  for (const problem of problems) cli.say(problemText(file, problem));
  const count = problems.length === 1 ? '1 mistake' : `${problems.length} mistakes`;
  const message = cli.json
    ? problems.map((problem) => problemText(file, problem)).join('; ')
    : `${file} has ${count}`;
  return new CliError(EXIT.refused, 'config_invalid', message, {
    next: 'correct the line, and run berth config check again',
  });
}

/** Prints the settings of a project that differ from the defaults. Throws CliError. */
export async function showConfig(cli: Cli, named: string | undefined): Promise<void> {
  const project = await cli.project(named);
  const schema = new URL('/api/schemas/berth-toml.json', cli.session().url).href;
  const settings = Object.fromEntries(
    Object.entries(project).filter(
      ([name, value]) =>
        JSON.stringify(value) !==
        JSON.stringify((PROJECT_DEFAULTS as Record<string, unknown>)[name]),
    ),
  );
  const { items: jobs } = await cli.client().call('listJobs', { params: { id: project.id } });
  const text = `#:schema ${schema}\n\n${berthToml({ ...settings, jobs })}`;
  cli.print({ text }, () => text.trimEnd());
  if (project.env_hidden)
    cli.say('without [env] and build_args: only developers of the project see their values');
}
