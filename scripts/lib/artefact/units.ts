/**
 * The units of deploy/systemd as the package installs them, and one for several agents on one
 * machine.
 */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../places.mjs';

const FOLDER = join(root, 'deploy/systemd');
/** The place of the programs in deploy/systemd, for an artefact that someone copied there. */
const COPIED = '/opt/berth';

/** @returns names and texts */
export function packagedUnits(): [name: string, text: string][] {
  const units = globSync('*.{service,socket}', { cwd: FOLDER })
    .toSorted()
    .map((name): [string, string] => [
      name,
      packaged(name, readFileSync(join(FOLDER, name), 'utf8')),
    ]);
  const agent = units.find(([name]) => name === 'berth-agent.service')?.[1] ?? '';
  return [...units, ['berth-agent@.service', instances(agent)]];
}

function packaged(name: string, text: string): string {
  const settings = `/etc/berth/${name.replace(/^berth-(.*)\.(service|socket)$/, '$1')}.env`;
  return (
    text
      .replace(
        'WorkingDirectory=/opt/berth',
        `WorkingDirectory=${name === 'berth-control-plane.service' ? '/var/lib/berth' : '/'}`,
      )
      .replaceAll(COPIED, '/usr/lib/berth')
      // A machine has the settings of its own roles only.
      .replace('[Unit]\n', `[Unit]\nConditionPathExists=${settings}\n`)
      .replace(
        'Environment=STATE_DIR=/var/lib/berth\n',
        (line) => `${line}Environment=DATABASE_URL=sqlite:/var/lib/berth/berth.db\n`,
      )
  );
}

/**
 * berth-agent@NAME.service reads agent-NAME.env and has folders of its own: a builder and a deploy
 * node on one machine.
 */
function instances(agent: string): string {
  return agent
    .replace(
      'Description=Berth agent (NODE_ROLE in /etc/berth/agent.env)',
      'Description=Berth agent %i (NODE_ROLE in /etc/berth/agent-%i.env)',
    )
    .replaceAll('/etc/berth/agent.env', '/etc/berth/agent-%i.env')
    .replace(
      'EnvironmentFile=',
      'Environment=STATE_DIR=/var/lib/berth-agent-%i\nEnvironment=SECRETS_DIR=/run/berth-agent-%i\nEnvironmentFile=',
    )
    .replace('StateDirectory=berth-agent\n', 'StateDirectory=berth-agent-%i\n')
    .replace('RuntimeDirectory=berth-agent\n', 'RuntimeDirectory=berth-agent-%i\n');
}
