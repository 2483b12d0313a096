/** HOST_IP as the contract detects it: the local address of a connection to the control plane. */
import { connect, isIPv6 } from 'node:net';

/** Opens and closes one TCP connection to `url`. Rejects when there is no answer within `timeoutMs`. */
export function localAddressTo(url: string, timeoutMs = 5_000): Promise<string> {
  const { hostname, port, protocol } = new URL(url);
  const host = hostname.replace(/^\[|\]$/g, '');
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port: Number(port || (protocol === 'https:' ? 443 : 80)) });
    socket.setTimeout(timeoutMs, () => socket.destroy(new Error(`no answer from ${host} within ${timeoutMs} ms`)));
    socket.once('error', reject);
    socket.once('connect', () => {
      const address = socket.localAddress ?? '';
      socket.destroy();
      resolve(isIPv6(address) && address.startsWith('::ffff:') ? address.slice('::ffff:'.length) : address);
    });
  });
}
