// The launcher in an artefact: lib/berth.js. bin/berth starts it with the Node beside it.
import { existsSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { answersWithoutProgram, launch } from './launch.mjs';

const lib = import.meta.dirname;
const args = process.argv.slice(2);

/** A folder of this user: a compile cache that others can write runs their code. */
function cache() {
  const folder = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
  return folder.startsWith('/') && existsSync(folder) ? join(folder, 'berth') : undefined;
}

// An operator who sets it to nothing wants no dashboard.
if (args[0] === 'control-plane') process.env.DASHBOARD_DIR ??= join(lib, '..', 'dashboard');

/** @type {import('./launch.mjs').Place} */
const artefact = {
  processEntry: (name) =>
    existsSync(join(lib, `${name}.js`)) ? join(lib, `${name}.js`) : undefined,
  commandEntry: (name) => join(lib, `${name}.js`),
  commandLine: () => ({ path: join(lib, 'cli', 'main.js'), cache: cache() }),
};

if (!answersWithoutProgram(args, artefact)) {
  const { commit } = JSON.parse(readFileSync(join(lib, '..', 'berth-build.json'), 'utf8'));
  if (commit !== null) process.env.BERTH_COMMIT ??= commit;
  await launch(args, artefact);
}
