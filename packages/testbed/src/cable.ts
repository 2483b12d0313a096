// Joins a network namespace to this machine: by its own cable, or with other namespaces at a
// switch.
//
//   own cable                             switch: hosts see each other, and this machine at one address
//   main namespace    namespace           main namespace     switch's namespace      hosts' namespaces
//   10.99.x.1 bt<x> ──── eth1 10.99.x.2   10.99.x.1 bt<x> ── main ┬ sw0 ┬ p2 ─────── eth1 10.99.x.2
//                                                                 │     └ p3 ─────── eth1 10.99.x.3
//
// The kernel removes a link together with the namespace that holds one of its ends, so a killed
// process leaves nothing behind.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Argv, type RunningProcess, run, startProcess } from './process.ts';
import { messageWithCause, waitFor } from './wait.ts';

/** Network of all cables; each cable and each switch takes one /24 of it. */
export const cableNetwork = '10.99.0.0/16';

export interface Cable {
  /** Address of this machine, seen from the other end. */
  readonly gatewayIp: string;
  /** Address of the other end, `eth1`. */
  readonly hostIp: string;
  /** Pulls the cable (false) or plugs it in (true). */
  connect(on: boolean): Promise<void>;
  /**
   * Removes the cable at once. The kernel removes it too, but some time after the namespace ended.
   */
  remove(): Promise<void>;
}

export interface Switch {
  /** Address of this machine for every host at the switch. It stays when a cable is pulled. */
  readonly gatewayIp: string;
  /**
   * Connects the namespace of this process by a cable, as its `eth1`. @throws when all 248 ports
   * are taken
   */
  plug(pid: number): Promise<Cable>;
  stop(): Promise<void>;
}

export interface NetworkOptions {
  /**
   * 0 to 249: the network to try first. The same network in each run lets docker recognise a
   * registry by its address.
   */
  readonly preferredNetwork: number;
}

/**
 * Lays a cable between this machine and the namespace of this process. While it is pulled, this
 * machine's end has no address.
 */
export async function layCable(pid: number, options: NetworkOptions): Promise<Cable> {
  const { linkName, network } = await takeNetwork(pid, 'eth1', options.preferredNetwork);
  return {
    gatewayIp: `${network}.1`,
    hostIp: `${network}.2`,
    async connect(on) {
      await run(['ip', 'link', 'set', linkName, on ? 'up' : 'down']);
    },
    async remove() {
      await run(['ip', 'link', 'delete', linkName], { mayFail: true });
    },
  };
}

/** @throws when the kernel refuses */
export async function startSwitch(options: NetworkOptions): Promise<Switch> {
  const holder = await startProcess(['unshare', '--net', 'sleep', 'infinity'], { name: 'switch' });
  try {
    return await wireSwitch(holder, options);
  } catch (error) {
    await holder.stop(0);
    throw new Error(`cannot create a network: ${messageWithCause(error)}\n${holder.tail()}`, {
      cause: error,
    });
  }
}

async function wireSwitch(holder: RunningProcess, options: NetworkOptions): Promise<Switch> {
  const { pid } = holder;
  await waitFor('the switch has its namespace', () => runs(pid, 'sleep'), {
    deadlineMs: 5_000,
    intervalMs: 5,
  });
  const enter = ['nsenter', '--target', String(pid), '--net', '--'] as const;
  const within = (...args: string[]) => run([...enter, ...args]);
  const { linkName, network } = await takeNetwork(pid, 'main', options.preferredNetwork);
  await within('ip', 'link', 'add', 'sw0', 'type', 'bridge');
  await within('ip', 'link', 'set', 'sw0', 'up');
  await within('ip', 'link', 'set', 'main', 'master', 'sw0', 'up');
  let ports = 1;
  return {
    gatewayIp: `${network}.1`,
    async plug(hostPid) {
      const number = ++ports;
      if (number > 249) throw new Error('the switch has no port left');
      const port = `p${number}`;
      await within(
        'ip',
        'link',
        'add',
        port,
        'type',
        'veth',
        'peer',
        'name',
        'eth1',
        'netns',
        String(hostPid),
      );
      await within('ip', 'link', 'set', port, 'master', 'sw0', 'up');
      return {
        gatewayIp: `${network}.1`,
        hostIp: `${network}.${number}`,
        // Only the switch's end goes down: the two other ends keep addresses and routes and receive
        // nothing, like with a pulled cable.
        async connect(on) {
          await within('ip', 'link', 'set', port, on ? 'up' : 'down');
        },
        async remove() {
          await run([...enter, 'ip', 'link', 'delete', port], { mayFail: true });
        },
      };
    },
    async stop() {
      await run(['ip', 'link', 'delete', linkName], { mayFail: true });
      await holder.stop(0);
    },
  };
}

/**
 * Takes a free /24 of the cables' network for a link between this machine and the namespace of
 * `pid`. This machine's end is up and has the address `.1`. Creating the link is the lock, because
 * its name holds the number.
 */
async function takeNetwork(
  pid: number,
  peerName: string,
  preferred: number,
): Promise<{ linkName: string; network: string }> {
  const addresses = (await run(['ip', '-4', '-oneline', 'address', 'show'])).stdout;
  for (let i = 0; i < 250; i++) {
    const x = 1 + ((preferred + i) % 250);
    const network = `10.99.${x}`;
    if (addresses.includes(` ${network}.`)) continue;
    const linkName = `bt${x}`;
    const argv: Argv = [
      'ip',
      'link',
      'add',
      linkName,
      'type',
      'veth',
      'peer',
      'name',
      peerName,
      'netns',
      String(pid),
    ];
    const made = await run(argv, { mayFail: true });
    if (made.code === 0) {
      await run(['ip', 'address', 'add', `${network}.1/24`, 'dev', linkName]);
      await run(['ip', 'link', 'set', linkName, 'up']);
      return { linkName, network };
    }
    if (!made.stderr.includes('File exists'))
      throw new Error(`cannot make a veth pair: ${made.stderr.trim()}`);
  }
  throw new Error('no free network among 10.99.1.0 to 10.99.250.0');
}

/** Whether this process runs that program already. Before that, its namespaces are not ready. */
export function runs(pid: number, program: string): boolean {
  return readFileSync(join('/proc', String(pid), 'comm'), 'utf8').trim() === program;
}
