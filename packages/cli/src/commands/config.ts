/** Commands for berth.toml: check the file of this folder, write the settings of a project as one. */
import type { Command } from './command.ts';
import { PROJECT_ARGUMENT } from './deploy.ts';

/** The parser and the real typebox take longer to load than the rest of the program. */
const configFile = () => import('../project/config-file.ts');

export const CONFIG_COMMANDS: readonly Command[] = [
  {
    name: 'config check',
    summary: 'Check berth.toml before you push: the line, the key and the rule of each mistake',
    detail:
      'Needs no sign-in. Exits with 1 for a wrong file, and with 0 if there is none. The control ' +
      'plane also refuses a variable that is a secret of the project.',
    args: [{ name: 'path', doc: 'the file, or its folder (default: this folder)' }],
    routes: [],
    run: async (cli, [given]) => (await configFile()).checkConfig(cli, given),
  },
  {
    name: 'config show',
    summary: 'Print the settings of a project as berth.toml',
    detail:
      'With values of berth.toml of the version that serves. Leaves out defaults, secrets, and ' +
      'what only the project can set.',
    args: [PROJECT_ARGUMENT],
    aboutProject: true,
    routes: ['getProject', 'listJobs'],
    run: async (cli, [named]) => (await configFile()).showConfig(cli, named),
  },
];
