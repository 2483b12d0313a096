/** Compares the clock of this machine with the control plane's. */
import { type Check, type Context, controlPlaneOf, whyUnreached } from '../check.ts';
import { finding, notChecked, ok, type Result } from '../result.ts';

const MOST_MS = 30_000;
const HTTP_MS = 5_000;

export const CLOCK: Check = {
  name: 'clock',
  roles: ['control-plane', 'gateway', 'relay', 'agent'],
  async run(context) {
    const { instances } = context;
    const others = instances.filter(
      ({ role, how }) => role !== 'control-plane' && how !== 'compose',
    );
    const urls = new Set(
      (await Promise.all(others.map((one) => controlPlaneOf(context, one)))).filter(
        (url) => url !== null,
      ),
    );
    const results = [...urls].map((url) => compare(context, url));
    if (instances.some(({ role }) => role === 'control-plane'))
      results.push(isSynchronized(context));
    return Promise.all(results);
  },
};

/** The comparison can be wrong by half of the round-trip time. */
async function compare({ system }: Context, url: string): Promise<Result> {
  const before = system.now();
  let date: string | null;
  try {
    ({ date } = await system.get(`${url}/healthz`, { timeoutMs: HTTP_MS }));
  } catch (error) {
    return notChecked(`the clock: the control plane at ${url} ${whyUnreached(error)}`);
  }
  const after = system.now();
  const there = Date.parse(date ?? '');
  if (Number.isNaN(there)) return notChecked(`the clock: the answer of ${url} has no Date`);
  // The header `Date` has a resolution of 1 s.
  const ahead = (before + after) / 2 - (there + 500);
  if (Math.abs(ahead) - (after - before) / 2 - 500 <= MOST_MS)
    return ok('the clock agrees with the control plane');
  const seconds = Math.round(Math.abs(ahead) / 1000);
  return finding(
    `the clock of this machine is ${seconds} s ${ahead > 0 ? 'ahead of' : 'behind'} the ` +
      'control plane’s',
    'sessions, tokens and certificates are refused as expired or not yet valid',
    'synchronize both machines: timedatectl set-ntp true, then timedatectl status',
  );
}

/** Checks that the control plane's clock is synchronized: all other clocks are compared with it. */
async function isSynchronized({ system }: Context): Promise<Result> {
  const ran = await system.run(['timedatectl', 'show', '--property=NTPSynchronized', '--value'], {
    timeoutMs: HTTP_MS,
  });
  const answer = ran?.code === 0 ? ran.stdout.trim() : '';
  if (answer === 'yes') return ok('the clock is synchronized');
  if (answer !== 'no')
    return notChecked('whether a time server sets the clock: timedatectl does not answer');
  return finding(
    'no time server sets the clock of this machine',
    'when the clock drifts, sessions and certificates are refused, and the log shows wrong times',
    'apt-get install systemd-timesyncd && timedatectl set-ntp true',
  );
}
