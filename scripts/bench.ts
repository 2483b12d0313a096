/**
 * npm run bench: prints ratios from one run, each with its goal. A noisy machine changes times, but
 * hardly ratios.
 */
import { parseArgs } from 'node:util';
import { benchAgents } from '../bench/agents.ts';
import { benchAnonymous } from '../bench/anonymous.ts';
import { benchCli } from '../bench/cli.ts';
import { benchDashboard } from '../bench/dashboard.ts';
import { benchData } from '../bench/data.ts';
import { benchDatabase } from '../bench/database.ts';
import { benchDeploy } from '../bench/deploy.ts';
import { benchExec } from '../bench/exec.ts';
import { benchFailover } from '../bench/failover.ts';
import { benchLogs } from '../bench/logs.ts';
import { benchPush } from '../bench/push.ts';
import { benchRoutes } from '../bench/routes.ts';
import { benchVerify } from '../bench/verify.ts';

const { values: options, positionals: wanted } = parseArgs({
  allowPositionals: true,
  options: {
    /** Number of agents of `agents`. */
    agents: { type: 'string', default: '10000' },
    /** File to which `agents` writes a CPU profile of its control plane. */
    profile: { type: 'string' },
    /** `agents` also measures what a bare server needs for the same requests. */
    floor: { type: 'boolean', default: false },
    /** The agents of `agents` send no beats. */
    'no-beats': { type: 'boolean', default: false },
    /** Number of redeployments of `failover`. */
    redeployments: { type: 'string', default: '10' },
  },
});
const agents = (): Promise<string[]> =>
  benchAgents({
    agents: Number(options.agents),
    profile: options.profile ?? null,
    floor: options.floor,
    beats: !options['no-beats'],
  });
const BENCHES = {
  deploy: benchDeploy,
  push: benchPush,
  routes: benchRoutes,
  agents,
  database: benchDatabase,
  data: benchData,
  verify: benchVerify,
  anonymous: benchAnonymous,
  cli: benchCli,
  logs: benchLogs,
  exec: benchExec,
  failover: () => benchFailover(Number(options.redeployments)),
  dashboard: benchDashboard,
};

const unknown = wanted.filter((name) => !Object.hasOwn(BENCHES, name));
if (unknown.length > 0) {
  console.error(
    `unknown benchmark: ${unknown.join(', ')}. Benchmarks: ${Object.keys(BENCHES).join(', ')}`,
  );
  process.exit(2);
}
for (const [name, bench] of Object.entries(BENCHES)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  for (const line of await bench()) console.log(line);
}
