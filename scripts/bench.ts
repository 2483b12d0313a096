/** npm run bench: ratios from one run, each against the goal. A noisy machine moves times, hardly ratios. */
import { parseArgs } from 'node:util';
import { benchAgents } from '../bench/agents.ts';
import { benchAnonymous } from '../bench/anonymous.ts';
import { benchData } from '../bench/data.ts';
import { benchDatabase } from '../bench/database.ts';
import { benchDeploy } from '../bench/deploy.ts';
import { benchRoutes } from '../bench/routes.ts';
import { benchVerify } from '../bench/verify.ts';

const { values: options, positionals: wanted } = parseArgs({
  allowPositionals: true,
  options: {
    /** How many agents `agents` starts. */
    agents: { type: 'string', default: '10000' },
    /** `agents` writes a CPU profile of its control plane here. */
    profile: { type: 'string' },
    /** `agents` also measures what a bare server needs for the same requests. */
    floor: { type: 'boolean', default: false },
  },
});
const agents = (): Promise<string[]> =>
  benchAgents({ agents: Number(options.agents), profile: options.profile ?? null, floor: options.floor });
const BENCHES = {
  deploy: benchDeploy,
  routes: benchRoutes,
  agents,
  database: benchDatabase,
  data: benchData,
  verify: benchVerify,
  anonymous: benchAnonymous,
};

const unknown = wanted.filter((name) => !Object.hasOwn(BENCHES, name));
if (unknown.length > 0) {
  console.error(`no benchmark ${unknown.join(', ')}; there are ${Object.keys(BENCHES).join(', ')}`);
  process.exit(2);
}
for (const [name, bench] of Object.entries(BENCHES)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  for (const line of await bench()) console.log(line);
}
