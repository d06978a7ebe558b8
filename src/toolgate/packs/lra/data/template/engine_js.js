  const ready = Promise.resolve();

  // Points with whole coordinates within distance r of the origin, column by column.
  function count(r) {
    let y = r, n = 0;
    for (let x = 0; x <= r; x++) {
      while (x * x + y * y > r * r) y--;
      n += (2 * y + 1) * (x ? 2 : 1);
    }
    return n;
  }
