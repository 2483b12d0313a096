/**
 * npm run dashboard: the dashboard without a server. Its API is a mock with made-up data, and each
 * change of its source shows at once. `--scenario large`, `--role viewer` and `--port 5173` choose
 * how it begins; /mock changes scenario and role.
 */
import { parseArgs } from 'node:util';
import { ROLES } from '@berth/wire/vocabulary';
import { startDevServer } from '../packages/dashboard/mock/dev.ts';
import { SCENARIOS } from '../packages/dashboard/mock/world.ts';

const { values } = parseArgs({
  options: {
    scenario: { type: 'string', default: 'usual' },
    role: { type: 'string', default: 'admin' },
    port: { type: 'string', default: '5173' },
  },
});

function oneOf<T extends string>(option: string, value: string, allowed: readonly T[]): T {
  const found = allowed.find((name) => name === value);
  if (found !== undefined) return found;
  console.error(`--${option} ${value}: use one of ${allowed.join(', ')}`);
  process.exit(2);
}

const port = Number(values.port);
if (!Number.isInteger(port) || port < 1 || port > 65_535) {
  console.error(`--port ${values.port}: use a number from 1 to 65535`);
  process.exit(2);
}
const url = await startDevServer({
  scenario: oneOf('scenario', values.scenario, SCENARIOS),
  role: oneOf('role', values.role, ROLES),
  port,
});
console.log(`The dashboard, with made-up data: ${url}`);
console.log(`Another scenario or role:         ${url}mock`);
console.log('Ctrl+C ends it.');
