/**
 * Writes `.berth.json`, which links a folder to a project. It contains no secret, so commit it to
 * the repository.
 */
import { join } from 'node:path';
import { writeFileWholeSync } from '@berth/kit/write-file';
import type { Project } from '@berth/wire/project';
import type { Cli } from '../cli.ts';
import { LINK_FILE } from '../session/choose.ts';

export function writeLink(cli: Cli, project: Project): string {
  const path = join(cli.io.cwd, LINK_FILE);
  const text = `${JSON.stringify({ url: cli.session().url, project: project.name }, null, 2)}\n`;
  writeFileWholeSync(path, text, { mode: 0o644 });
  cli.say(`wrote ${path}; commit it, so that others deploy the same project from this folder`);
  return path;
}
