/** Returns the instructions for removing a container that Berth does not control. Pure. */
export const removeByHand = (container: string, hostname: string): string =>
  `remove it by hand (docker rm -f ${container}), then: berth node removed ${hostname} ` +
  container;
