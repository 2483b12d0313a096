/** npm run bench: ratios from one run, each against the goal. A noisy machine moves times, hardly ratios. */
import { benchAgents } from '../bench/agents.ts';
import { benchDatabase } from '../bench/database.ts';
import { benchDeploy } from '../bench/deploy.ts';
import { benchRoutes } from '../bench/routes.ts';

const BENCHES = { deploy: benchDeploy, routes: benchRoutes, agents: benchAgents, database: benchDatabase };

const wanted = process.argv.slice(2).filter((arg) => !arg.startsWith('-'));
const unknown = wanted.filter((name) => !Object.hasOwn(BENCHES, name));
if (unknown.length > 0) {
  console.error(`no benchmark ${unknown.join(', ')}; there are ${Object.keys(BENCHES).join(', ')}`);
  process.exit(2);
}
for (const [name, bench] of Object.entries(BENCHES)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  for (const line of await bench()) console.log(line);
}
