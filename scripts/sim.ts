/** npm run sim: seeded runs of the whole lifecycle on simulated time (packages/control-plane/test/sim); exit 1 when one breaks an invariant. */
import { parseArgs } from 'node:util';
import { PLANTS, type PlantName } from '../packages/control-plane/test/sim/plants.ts';
import { report } from '../packages/control-plane/test/sim/report.ts';
import { run } from '../packages/control-plane/test/sim/run.ts';

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    seeds: { type: 'string', default: '1000' },
    from: { type: 'string', default: '1' },
    plant: { type: 'string', default: 'none' },
    /** Prints every event of the history as a JSON line. */
    trace: { type: 'boolean', default: false },
  },
});
if (!Object.hasOwn(PLANTS, values.plant)) {
  console.error(`no planted bug "${values.plant}"; there are ${Object.keys(PLANTS).join(', ')}`);
  process.exit(2);
}
const plant = values.plant as PlantName;
const from = wholeNumber('seed', values.seed ?? values.from);
const count = values.seed === undefined ? wholeNumber('seeds', values.seeds) : 1;

const began = performance.now();
const sum = { violations: 0, deployments: 0, events: 0, simulatedMs: 0 };
for (let seed = from; seed < from + count; seed++) {
  const result = await run({ seed, plant, ...(values.trace ? { trace: (event) => console.log(JSON.stringify(event)) } : {}) });
  sum.violations += result.violations.length;
  sum.deployments += result.deployments;
  sum.events += result.history.length;
  sum.simulatedMs += result.simulatedMs;
  if (result.violations.length > 0) console.log(report(result, plant === 'none' ? '' : ` --plant "${plant}"`));
}
const seconds = (performance.now() - began) / 1000;
console.log(
  `${count} seeds, ${sum.deployments} deployments, ${sum.events} events, ${(sum.simulatedMs / 60_000).toFixed(0)} simulated minutes in ${seconds.toFixed(1)} s: ${sum.violations} violations`,
);
process.exitCode = sum.violations === 0 ? 0 : 1;

function wholeNumber(name: string, text: string): number {
  if (/^\d{1,9}$/.test(text)) return Number(text);
  console.error(`--${name}: "${text}" is no whole number`);
  process.exit(2);
}
